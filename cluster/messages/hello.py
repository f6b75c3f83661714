"""What an engine says about itself once: what never changes while it lives. Its reports carry what does."""

from __future__ import annotations

from pydantic import Field

from cluster.messages.base import BatchSize, Depth, Message
from cluster.messages.request_socket import Address
from cluster.messages.spec import EngineSpec


class EngineFacts(Message):
    """What was settled when the engine started."""

    off: str = Field("", description="How steps at depth 0 keep the draft's KV cache complete; if they defer nothing, why.")
    graph_sizes: dict[Depth, tuple[BatchSize, ...]] = Field({}, description="Batch sizes with a CUDA graph, by depth.")
    state_gib: dict[Depth, float] = Field({}, description="GPU memory of each depth's graphs and attention buffers, in GiB.")
    step_ms: dict[Depth, dict[BatchSize, float]] = Field(
        {}, description="Step times known at the start, by depth and batch size, in ms: a profile, or measured by the engine."
    )


class ServingFacts(EngineFacts):
    """What is known about an engine that serves: its sizes too."""

    incarnation: int = Field(ge=0, description="When the engine started, in ns since the epoch; as in its reports.")
    candidate_depths: tuple[Depth, ...] = Field(description="Depths that the engine can switch to.")
    batch_sizes: tuple[BatchSize, ...] = Field(description="CUDA graph batch sizes that steps are padded to; empty: none.")
    max_running: int = Field(ge=1, description="Most requests that the engine decodes at once.")


class EngineHello(Message):
    """An engine's answer to `hello`. It never leaves the application: its address holds a key, and its spec an environment."""

    spec: EngineSpec = Field(description="The spec that it was started with.")
    facts: ServingFacts | None = Field(None, description="What its start settled; null until it serves.")
    address: Address | None = Field(None, description="Where it takes requests; null until it serves.")
