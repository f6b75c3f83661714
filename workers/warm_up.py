"""What an engine answers before it serves, since SGLang compiles some kernels when it first needs them.

The CUDA compiler takes 110 s on an H200's host, once on a node, for FlashInfer's kernels of top-p, top-k and min-p and SGLang's
own of sampled verification. In an engine that serves, everybody's requests would stand still meanwhile, and it would be killed
for one that hangs.
"""

from __future__ import annotations

from cluster.messages.directive import DepthTable
from workers.directed_engine import DirectedEngine

SAMPLING: tuple[dict[str, float], ...] = (
    {},
    {"temperature": 0.7},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 20},
    {"temperature": 0.7, "frequency_penalty": 0.1, "presence_penalty": 0.1, "repetition_penalty": 1.1},
)
PROMPT, TOKENS = 16, 4


async def warm_up(engine: DirectedEngine) -> None:
    """Generate in each way of sampling, with and without a draft. The engine serves nobody yet."""
    for depth in (0, max(engine.spec.candidate_depths)):
        await engine.follow(DepthTable(depth_by_batch={1: depth}))
        for sampling in SAMPLING:
            await engine.generate([list(range(2, 2 + PROMPT))], TOKENS, **sampling)
    await engine.follow(engine.spec.fallback)
