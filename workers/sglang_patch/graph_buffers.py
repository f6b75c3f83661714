"""Input buffers that CUDA graphs of several depths share."""

from __future__ import annotations

from typing import Any

OF_ONE_DEPTH = ("extend_seq_lens", "num_correct_drafts", "num_accept_tokens")
"""Buffers that a draft-extend graph fills with the width of its own depth."""


def share_buffers(original: Any, buffers: Any, *, exclude: Any = ()) -> None:
    """Keep a draft-extend graph's own lengths to itself.

    Graph runners share buffers of one name and size. Those of the draft-extend graph hold the width that the runner captures
    (depth + 1). A runner of another depth that took them over would capture with lengths of more tokens than it has, and
    attention would read beyond its input: docs/zero_step_capture.md.
    """
    original(buffers, exclude={*exclude, *OF_ONE_DEPTH})
