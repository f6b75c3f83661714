"""The ingress's `user_config`: what may change while it runs."""

from __future__ import annotations

from pydantic import Field, model_validator

from cluster.messages.base import Message
from cluster.routing.admission_queue import QueueLimits
from serve_app.access.keys import KeySource


class IngressSettings(Message):
    """Who may ask, for how much and for how long. The defaults let anyone in: the server listens on loopback alone."""

    api_keys: KeySource | None = Field(None, description="Keys of clients. Default: none is asked for.")
    admin_keys: KeySource | None = Field(
        None,
        description="Keys for `POST /fleet/*`, good for the other routes too. Default: without `api_keys` these are as open as "
        "the rest, with them they are closed.",
    )
    cors_origins: tuple[str, ...] = Field(
        (), description="Origins whose pages may call from a browser; `*` is any. Default: none."
    )
    max_body_bytes: int = Field(4 << 20, ge=1, description="Largest body of a request, in bytes; a larger one gets 413.")
    default_timeout_s: float = Field(600.0, gt=0, description="How long a request may take that names no timeout, in seconds.")
    max_timeout_s: float = Field(
        3600.0, gt=0, description="Longest timeout of a request, in seconds; who asks for more gets this."
    )
    max_in_flight: int | None = Field(
        None, ge=1, description="Most requests of one engine, running or waiting. Default: 1.5 times what it decodes at once."
    )
    queue_length: int = Field(256, ge=0, description="Most requests that wait in one ingress replica for an engine with a place.")
    queue_timeout_s: float = Field(10.0, gt=0, description="How long one waits there before it is refused, in seconds.")
    affinity_chars: int = Field(
        1024, ge=1, description="Requests without a session that begin with the same so many characters go to the same engine."
    )

    @model_validator(mode="after")
    def _consistent(self) -> IngressSettings:
        if self.default_timeout_s > self.max_timeout_s:
            raise ValueError(f"default_timeout_s: {self.default_timeout_s:g} is more than max_timeout_s, {self.max_timeout_s:g}")
        return self

    @property
    def queue_limits(self) -> QueueLimits:
        return QueueLimits(self.max_in_flight, self.queue_length, self.queue_timeout_s)
