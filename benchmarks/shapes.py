"""A target and a draft with the shapes of a real pair and random weights: enough to measure what steps cost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.serving import NO_MULTICAST, ROOT

_LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
}


def llama_8b_pair(folder: Path) -> tuple[Path, Path]:
    """Write the two configurations (Llama 3.1 8B and a one-layer EAGLE-3 draft of 32,000 tokens) into `folder`.

    Engines need `load_format: dummy` and `skip_tokenizer_init: true` for them.
    """
    target = {**_LLAMA_8B, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32}
    draft = {**_LLAMA_8B, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000}
    for name, config in (("target", target), ("draft", draft)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(config))
    return folder / "target", folder / "draft"


def served_8b(folder: Path, accept_length: float, mem_fraction: float) -> dict[str, Any]:
    """Arguments of an application that serves the pair, written into `folder`, with engines of one H200 each.

    Random weights accept nothing, so acceptance is SGLang's simulation: every step yields `accept_length` tokens a request,
    but at most depth + 1. The tokenizer is the tiny pair's: any will do to print tokens.
    """
    target, draft = llama_8b_pair(folder)
    for file in (ROOT / "workers" / "tiny" / "target").glob("tokenizer*"):
        shutil.copy(file, target)
    return {
        "model": str(target),
        "draft_model": str(draft),
        "profile": "h200_llama8b_eagle3",
        "environment": {"SGLANG_SIMULATE_ACC_LEN": str(accept_length), **NO_MULTICAST},
        "server_args": {
            "load_format": "dummy",
            "dtype": "bfloat16",
            "attention_backend": "fa3",
            "mem_fraction_static": mem_fraction,
            "max_running_requests": 128,
            "cuda_graph_bs_decode": [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128],
        },
    }
