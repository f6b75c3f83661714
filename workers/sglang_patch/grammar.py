"""What a grammar lets a request say next."""

from __future__ import annotations

from typing import Any


def apply_vocab_mask(original: Any, grammar: Any, logits: Any, vocab_mask: Any) -> None:
    """Allow all tokens where a grammar allows none.

    Without any allowed token sampling fails, and with it the scheduler and everybody's requests. With all of them allowed,
    the grammar refuses the one that is sampled, and SGLang ends that request alone.
    """
    none_left = ~vocab_mask.any(dim=-1, keepdim=True)
    original(grammar, logits, vocab_mask.masked_fill(none_left, -1))
