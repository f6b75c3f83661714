"""Batch sizes that SGLang captures CUDA graphs for, and free GPU memory. Imported only inside a scheduler process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, check_cuda_graph_backend
from sglang.srt.model_executor.runner.base_cuda_graph_runner import get_batch_sizes_to_capture
from sglang.srt.runtime_context import get_exec
from sglang.srt.utils.common import get_available_gpu_memory


def sizes(runner: Any) -> list[int]:
    """Batch sizes of decode graphs, ascending; empty where there are no graphs."""
    if check_cuda_graph_backend(Phase.DECODE, Backend.DISABLED):
        return []
    return list(get_batch_sizes_to_capture(runner)[0])


@contextmanager
def captured_for(batch_sizes: Sequence[int]) -> Iterator[None]:
    """Capture graphs for these batch sizes only. With no sizes, SGLang captures its own."""
    config = get_exec().graph.cuda_graph_config
    if config is None or not batch_sizes:
        yield
        return
    before, config.decode.bs = config.decode.bs, list(batch_sizes)
    try:
        yield
    finally:
        config.decode.bs = before


def free_gib(device: str, gpu: int) -> float:
    """Free GPU memory in GiB; 0 on a CPU, where the states of depths take next to none."""
    return float(get_available_gpu_memory(device, gpu)) if device == "cuda" else 0.0
