"""The calls of an engine's actor, as the controller, the ingress and tests see its handle."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ParamSpec, Protocol, TypeVar

from cluster.messages.directive import Directive
from cluster.messages.hello import EngineHello
from cluster.messages.report import EngineReport, NotServing

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer", covariant=True)


class Call(Protocol[Arguments, Answer]):
    """A method of a Ray actor."""

    def remote(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Awaitable[Answer]:
        """Send the call. The answer raises a `RayError` if the actor is gone, cannot be reached, or raises."""
        ...


class EngineCalls(Protocol):
    """Handle of an engine's actor. No call waits for the engine's running requests."""

    @property
    def hello(self) -> Call[[], EngineHello]:
        """What never changes about the engine."""
        ...

    @property
    def exchange(self) -> Call[[Directive], EngineReport | NotServing]:
        """Send a directive and get a report. Answers once the table is in force in every rank."""
        ...

    @property
    def check_health(self) -> Call[[], None]:
        """Answers once the engine has generated a token; raises if it generates none."""
        ...
