"""Whether an engine hangs, by how long it has given no sign of life."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.messages.settings import ControllerSettings


@dataclass
class SignsOfLife:
    """Seconds since signs of life. A token is one: one more in a report, or one that a health probe generated. An answer
    alone is not enough, for an actor whose scheduler hangs still answers."""

    silent_s: float = 0.0  # without an answer, since one was due
    lifeless_s: float = 0.0  # without a token, since it serves
    starting_s: float = 0.0  # since it was placed, until it serves

    def wants_probe(self, settings: ControllerSettings) -> bool:
        return self.lifeless_s >= settings.probe_after_s

    def verdict(self, settings: ControllerSettings, doing: str) -> str:
        """Why the engine must be replaced, empty if it need not be. `doing` is what it last said of itself."""
        hung_s = settings.probe_after_s + settings.hung_after_s
        if self.lifeless_s >= hung_s:
            return f"hung: no token for {self.lifeless_s:.0f} s, though asked for one"
        if self.silent_s >= hung_s:
            return f"hung: no answer for {self.silent_s:.0f} s"
        if self.starting_s >= settings.start_within_s:
            return f"did not serve within {settings.start_within_s:g} s; it was at: {doing}"
        return ""
