"""Train the tiny pair: `python -m workers.tiny.train --out DIR [--device cuda|cpu]`.

The text is the running Python's standard library (PSF-2.0). The defaults made the pair in this folder.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from workers.tiny.acceptance import measure
from workers.tiny.batches import Mixture, Stream
from workers.tiny.corpus import chats, read_modules, standard_library
from workers.tiny.distill import own_text, train_draft
from workers.tiny.eagle import Eagle3Draft, draft_config
from workers.tiny.llama import MAX_LENGTH, generate, held_out_loss, load_target, new_target, train_target
from workers.tiny.tokenizer import chat_text, save_tokenizer, train_tokenizer

PROMPT, DEPTH = 64, 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for target/ and draft/")
    parser.add_argument("--source", type=Path, default=standard_library(), help="the standard library to read")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2400, help="of the target")
    parser.add_argument("--batch", type=int, default=32, help="windows a step of the target")
    parser.add_argument("--length", type=int, default=1024, help="tokens a window of the target")
    parser.add_argument("--draft-steps", type=int, default=2000)
    parser.add_argument("--draft-batch", type=int, default=24)
    parser.add_argument("--draft-length", type=int, default=512)
    parser.add_argument("--own-rows", type=int, default=6144, help="texts the target writes for the draft")
    parser.add_argument("--eval-rows", type=int, default=128)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    start = time.perf_counter()

    modules = read_modules(args.source)
    texts = [module.text for module in modules if not module.held_out]
    turns = [chat_text(*turn) for turn in chats(args.source, [m for m in modules if not m.held_out], args.seed)]
    tokenizer = train_tokenizer(texts)
    data = Mixture(Stream.of_documents(tokenizer, texts, args.device), Stream.of_chats(tokenizer, turns, args.device))
    unseen = Stream.of_documents(tokenizer, [m.text for m in modules if m.held_out], args.device)
    print(
        f"{len(texts)} modules, {len(data.text.tokens):,} tokens; {len(turns)} chats, {len(data.chat.tokens):,} tokens; "
        f"held out {len(unseen.tokens):,} tokens",
        flush=True,
    )

    target = new_target(args.device)
    windows = unseen.spread(args.eval_rows, args.length)
    train_target(target, data, windows, steps=args.steps, batch=args.batch, length=args.length)
    target.bfloat16().save_pretrained(args.out / "target")
    save_tokenizer(tokenizer, args.out / "target", MAX_LENGTH)
    target = load_target(args.out / "target", args.device)  # from here on as it will be served
    print(f"target: held-out loss {held_out_loss(target, windows):.3f} nats a token in bfloat16", flush=True)

    own = own_text(target, data, rows=args.own_rows, prompt=PROMPT // 2, length=args.draft_length)
    print(f"the target wrote {own.numel():,} tokens, {time.perf_counter() - start:.0f} s so far", flush=True)
    draft = Eagle3Draft(draft_config()).to(args.device)
    train_draft(draft, target, data, own, steps=args.draft_steps, batch=args.draft_batch)
    draft.save(args.out / "draft")
    draft = Eagle3Draft.load(args.out / "draft").to(args.device)

    prompts = unseen.spread(args.eval_rows, PROMPT)
    result = measure(draft, target, generate(target, prompts, 256), PROMPT, DEPTH)
    shown = ", ".join(f"{chance:.3f}" for chance in result.by_position)
    print(f"draft: accept length {result.accept_length:.2f} at depth {DEPTH}, acceptance by position {shown}")
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
