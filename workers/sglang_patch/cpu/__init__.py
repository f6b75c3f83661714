"""Runs the real SGLang engine, EAGLE-3 included, on any x86 CPU.

SGLang's own kernels for CPUs need AMX and a wheel built for them. This package has the few that EAGLE-3 calls, in plain
torch, under the names that SGLang looks up. `environment()` puts them first on the path of an engine's processes;
`patch.apply()` and the contract's hooks for the CPU make SGLang use them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent

CPU_SERVER_ARGS: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    # SGLang sizes the KV cache from free memory, which on a CPU is all of the machine's.
    "max_total_tokens": 16384,
    "max_running_requests": 16,
    "chunked_prefill_size": 512,
    "disable_cuda_graph": True,
    # An idle scheduler would spin on a core that the others need.
    "sleep_on_idle": True,
}
"""What an engine on a CPU needs beside its models; the rest SGLang resolves by itself there: the attention backend
(`torch_native`, see `patch`), no CUDA graphs, no overlap of scheduling with the forward pass."""


def environment(threads: int = 1) -> dict[str, str]:
    """Environment variables of each process that will import sglang; they must be set before it does.

    `threads` is what one engine uses for its matrix products.
    """
    paths = [str(_HERE / "standin"), str(_HERE.parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        "SGLANG_USE_CPU_ENGINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "PYTHONPATH": os.pathsep.join(path for path in dict.fromkeys(paths) if path),
        "OMP_NUM_THREADS": str(threads),
        # A product's bits then depend on no alignment and, on Intel's CPUs, on no number of rows: see `exact`.
        "MKL_CBWR": "AVX2,STRICT",
        # For tensor parallelism: SGLang wants a core named for each rank (without AMX it then binds none), and takes the
        # NCCL that it finds for usable.
        "SGLANG_CPU_OMP_THREADS_BIND": "|".join(str(core) for core in range(os.cpu_count() or 1)),
        "SGLANG_NCCL_SO_PATH": "none",
        # Gathered keys and values are some MB large at each layer: keep their memory instead of faulting it in anew.
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    }
