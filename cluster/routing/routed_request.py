"""What a request brings along on its way to an engine."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.routing.deadline import Deadline


@dataclass(frozen=True)
class RoutedRequest:
    """A request whose body has been checked."""

    route: str
    """Which of OpenAI's routes, as in `serve_app.bodies.routes.ROUTES`."""

    body: bytes
    """The client's own bytes."""

    samples: int
    """How many answers the engine works on at once."""

    affinity: bytes | None
    """Equal for requests that profit from one engine's prefix cache; None for a request that any engine answers as well."""

    deadline: Deadline
    """When the request ends, whatever it waits for."""
