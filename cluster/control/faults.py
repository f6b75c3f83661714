"""What state an engine is in, why, and what to do about it: a state machine without a clock and without calls.

`EngineHealth` is the state; each of its methods takes one observation and returns the next state. docs/fleet.md holds the
table of faults, and tests/unit/test_faults.py checks each of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from cluster.messages.settings import ControllerSettings
from cluster.messages.status import EngineState

Action = Literal["carry on", "check its health", "replace it"]

CREATED = "its actor is being created"
ADOPTED = "adopted; it has not answered yet"


@dataclass(frozen=True)
class EngineHealth:
    """One engine as the controller sees it. `failed` is final: no later observation changes it.

    Only a token shows that an engine works: one more in a report, or one that a health check generated. An answer alone
    does not, because an actor answers while its scheduler hangs.
    """

    answered_as: EngineState = "starting"
    """Its state by its answers alone; draining does not count."""
    reason: str = CREATED
    """Why it is in its state; empty while all is well."""
    adopted: bool = False
    """Whether another controller created it."""
    draining: bool = False
    answered: bool = False
    """Whether it has ever answered this controller."""
    served: bool = False
    """Whether it has ever served under this controller."""
    silent_s: float = 0.0
    """Seconds without an answer, since one was due."""
    tokenless_s: float = 0.0
    """Seconds without a token, since it serves."""
    starting_s: float = 0.0
    """Seconds since it was placed on a node, until it serves."""

    @classmethod
    def created(cls) -> EngineHealth:
        return cls()

    @classmethod
    def found(cls) -> EngineHealth:
        """An engine that another controller created."""
        return cls(reason=ADOPTED, adopted=True)

    # -- outputs --

    @property
    def state(self) -> EngineState:
        return "draining" if self.draining and not self.lost else self.answered_as

    @property
    def known(self) -> bool:
        """Whether its state is reliable: an adopted engine may be in any state until it answers."""
        return self.answered or not self.adopted or self.answered_as == "waiting"

    @property
    def lost(self) -> bool:
        """Whether it must be replaced."""
        return self.answered_as == "failed"

    def action(self, settings: ControllerSettings) -> Action:
        if self.lost:
            return "replace it"
        return "check its health" if self.tokenless_s >= settings.health_check_after_s else "carry on"

    # -- observations --

    def reported(self, new_tokens: bool) -> EngineHealth:
        """It answered with a report, so it serves. `new_tokens`: it has yielded tokens since the report before, if any."""
        tokenless_s = 0.0 if new_tokens else self.tokenless_s
        return self._now("serving", "", answered=True, served=True, silent_s=0.0, tokenless_s=tokenless_s)

    def starts(self, doing: str) -> EngineHealth:
        """It answered that it does not serve yet."""
        return self._now("starting", doing, answered=True, silent_s=0.0)

    def gave_up(self, why: str) -> EngineHealth:
        """It answered that it failed to start."""
        return self._lost(why)

    def late(self, deadline_s: float) -> EngineHealth:
        """It has not answered within the deadline, and may still do so."""
        return self._now("unhealthy", f"no answer within {deadline_s:g} s") if self.answered_as == "serving" else self

    def unreachable(self, why: str) -> EngineHealth:
        """A call to it failed, though its actor lives."""
        return self._now("unhealthy", why)

    def gone(self, why: str) -> EngineHealth:
        """Its actor is dead."""
        return self._lost(why)

    def unplaced(self, shortage: str) -> EngineHealth:
        """No node has room for it. No clock runs against it meanwhile."""
        return self._next(answered_as="waiting", reason=shortage, silent_s=0.0)

    def placed(self) -> EngineHealth:
        """It is on a node, or about to be."""
        return self._next(answered_as="starting", reason=CREATED) if self.answered_as == "waiting" else self

    def drains(self, why: str) -> EngineHealth:
        """It was told to drain, and gets no more requests."""
        return self._next(draining=True, reason=why)

    def health_check(self, passed: bool) -> EngineHealth:
        """A health check ended. A failed one changes nothing: the time without a token runs on."""
        return self._next(tokenless_s=0.0) if passed else self

    def time_passed(self, seconds: float, settings: ControllerSettings) -> EngineHealth:
        """`seconds` went by. Time during which the controller itself was stopped is left out: its engines are not to blame."""
        waiting = self.answered_as == "waiting"
        due = self.answered or (self.adopted and not waiting)
        after = self._next(
            silent_s=self.silent_s + seconds * due,
            tokenless_s=self.tokenless_s + seconds * self.served,
            starting_s=0.0 if self.served or waiting else self.starting_s + seconds,
        )
        hung_s = settings.health_check_after_s + settings.hung_after_s
        if after.tokenless_s >= hung_s:
            return after._lost(f"hung: no token for {after.tokenless_s:.0f} s, though asked for one")
        if after.silent_s >= hung_s:
            return after._lost(f"hung: no answer for {after.silent_s:.0f} s")
        if after.starting_s >= settings.start_within_s:
            return after._lost(f"did not serve within {settings.start_within_s:g} s; it was at: {self.reason}")
        return after

    # -- steps --

    def _now(self, answered_as: EngineState, reason: str, **changes: Any) -> EngineHealth:
        """The next state by an answer. While it drains, it keeps the reason for draining."""
        return self._next(answered_as=answered_as, reason=self.reason if self.draining else reason, **changes)

    def _lost(self, why: str) -> EngineHealth:
        return self._next(answered_as="failed", reason=why)

    def _next(self, **changes: Any) -> EngineHealth:
        return self if self.lost else replace(self, **changes)
