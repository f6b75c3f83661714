"""The ingress's `user_config`: what may change while it runs."""

from __future__ import annotations

from pydantic import Field, model_validator

from cluster.messages.base import Message
from cluster.routing.admission_queue import QueueLimits
from serve_app.access.keys import KeySource


class IngressSettings(Message):
    """Who may ask, for how much and for how long. By default anyone may, since the server listens on loopback alone."""

    api_keys: KeySource | None = Field(None, description="Keys of clients. Default: clients need none.")
    admin_keys: KeySource | None = Field(
        None,
        description="Keys for `POST /fleet/*`, which open the other routes too. Default: these routes are open if there are no "
        "`api_keys`, and closed if there are.",
    )
    cors_origins: tuple[str, ...] = Field(
        (), description="Origins whose pages may call from a browser; `*` is any. Default: none."
    )
    max_body_bytes: int = Field(4 << 20, ge=1, description="Largest body of a request, in bytes; a larger one gets 413.")
    default_timeout_s: float = Field(600.0, gt=0, description="How long a request may take if it names no timeout, in seconds.")
    max_timeout_s: float = Field(
        3600.0, gt=0, description="Longest timeout of a request, in seconds. A longer one is cut to this."
    )
    max_in_flight: int | None = Field(
        None, ge=1, description="Most requests of one engine, running or waiting. Default: 1.5 times what it decodes at once."
    )
    queue_length: int = Field(256, ge=0, description="Most requests that wait in one ingress replica for a slot in an engine.")
    queue_timeout_s: float = Field(10.0, gt=0, description="How long a request waits there before it is refused, in seconds.")
    affinity_chars: int = Field(
        1024,
        ge=1,
        description="Requests without a session go to one engine if this many of their first characters are equal.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> IngressSettings:
        if self.default_timeout_s > self.max_timeout_s:
            raise ValueError(f"default_timeout_s: {self.default_timeout_s:g} is more than max_timeout_s, {self.max_timeout_s:g}")
        return self

    @property
    def queue_limits(self) -> QueueLimits:
        return QueueLimits(self.max_in_flight, self.queue_length, self.queue_timeout_s)
