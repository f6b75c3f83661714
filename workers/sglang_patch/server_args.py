"""From an engine's spec to the arguments of its SGLang engine."""

from __future__ import annotations

import importlib.util
import json
import runpy
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cluster.messages.spec import EngineSpec
from workers import tiny

TINY = "tiny"
"""Model name that means the packaged pair."""

OWNED = {
    "model_path": "model",
    "served_model_name": "served_model_name",
    "speculative_algorithm": "draft_model",
    "speculative_draft_model_path": "draft_model",
    "speculative_num_steps": "candidate_depths",
    "speculative_num_draft_tokens": "candidate_depths",
    "speculative_adaptive": "candidate_depths",
    "speculative_adaptive_config": "candidate_depths",
    "speculative_eagle_topk": "candidate_depths",
    "tp_size": "tensor_parallel",
    "device": "device",
}
"""SGLang arguments that follow from a field of ours, and that field."""

_CUDA_DEFAULTS: dict[str, Any] = {
    # Without these two SGLang captures prefill graphs for minutes at every start.
    "chunked_prefill_size": 8192,
    "disable_prefill_cuda_graph": True,
}


@cache
def known_arguments() -> frozenset[str]:
    """Names of SGLang's server arguments, read from its source: importing it would take many seconds.

    Raises:
        RuntimeError: if SGLang is not installed.
    """
    package = importlib.util.find_spec("sglang")
    if package is None or package.origin is None:
        raise RuntimeError("sglang is not installed; install specfleet by pip, which brings the version that it needs")
    path = Path(package.origin).parent / "srt" / "arg_groups" / "field_order.py"
    return frozenset(runpy.run_path(str(path))["POSITIONAL_FIELD_ORDER"])


def check_server_args(names: Iterable[str]) -> None:
    """Refuse arguments that SGLang does not know, or that another field decides.

    Raises:
        ValueError: naming each such argument.
    """
    names = set(names)
    if unknown := names - known_arguments():
        raise ValueError(f"server_args: SGLang {version('sglang')} has no argument {', '.join(sorted(unknown))}")
    if owned := names & OWNED.keys():
        raise ValueError("server_args: " + "; ".join(f"{name} follows from {OWNED[name]}" for name in sorted(owned)))


def sglang_arguments(spec: EngineSpec, folder: Path) -> dict[str, Any]:
    """Arguments for `sglang.Engine`. Writes SGLang's adaptive configuration into `folder`.

    Raises:
        FileNotFoundError: if a model is given as a path that does not exist.
        ValueError: if the draft is missing, or `server_args` are wrong.
    """
    check_server_args(spec.server_args)
    if spec.model == TINY:
        model, draft = str(tiny.TARGET), str(tiny.DRAFT)
    elif spec.draft_model:
        model, draft = _existing(spec.model, "model"), _existing(spec.draft_model, "draft_model")
    else:
        raise ValueError(f"draft_model: {spec.model} needs an EAGLE-3 draft; name its path or its Hugging Face id")
    # SGLang sizes its buffers for the deepest depth named here; our policy then decides in place of its own.
    adaptive = folder / "adaptive.json"
    adaptive.write_text(json.dumps({"1": {"candidate_steps": list(spec.candidate_depths)}}))
    return {
        "log_level": "warning",
        # Lets a client see in `usage` how many of its prompt's tokens came from the cache.
        "enable_cache_report": True,
        **_device_defaults(spec.device),
        **spec.server_args,
        "model_path": model,
        "served_model_name": spec.served_model_name,
        "device": spec.device,
        "tp_size": spec.tensor_parallel,
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": draft,
        "speculative_eagle_topk": 1,
        "speculative_num_steps": max(spec.candidate_depths),
        "speculative_adaptive": True,
        "speculative_adaptive_config": str(adaptive),
    }


def _device_defaults(device: str) -> dict[str, Any]:
    if device == "cuda":
        return _CUDA_DEFAULTS
    from workers.sglang_patch.cpu import CPU_SERVER_ARGS

    return CPU_SERVER_ARGS


def _existing(model: str, field: str) -> str:
    """A model that looks like a path must be there; anything else is left to Hugging Face."""
    if model.startswith(("/", ".", "~")) and not Path(model).expanduser().is_dir():
        raise FileNotFoundError(f"{field}: no folder {model} on this node")
    return str(Path(model).expanduser()) if model.startswith("~") else model
