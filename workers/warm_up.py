"""What an engine generates before it serves, because SGLang compiles some kernels when it first needs them.

FlashInfer's kernels for top-p, top-k and min-p and SGLang's for sampled verification take the CUDA compiler 110 s on an H200's
host, once for each node. If an engine already served, all requests would stand still meanwhile, and the controller would take
it for one that hangs.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.messages.directive import DepthTable
from workers.directed_engine import DirectedEngine
from workers.engine_face import GREEDY

SAMPLING: tuple[Mapping[str, float], ...] = (
    GREEDY,
    {"temperature": 0.7},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 20},
    {"temperature": 0.7, "frequency_penalty": 0.1, "presence_penalty": 0.1, "repetition_penalty": 1.1},
)
PROMPT, TOKENS = 16, 4


async def warm_up(engine: DirectedEngine) -> None:
    """Generate in each way of sampling, with and without a draft. The engine serves nobody yet."""
    for depth in (0, max(engine.spec.candidate_depths)):
        await engine.put_in_force(DepthTable(depth_by_batch={1: depth}))
        for sampling in SAMPLING:
            await engine.face.generate([list(range(2, 2 + PROMPT))], TOKENS, sampling)
    await engine.put_in_force(engine.spec.fallback)
