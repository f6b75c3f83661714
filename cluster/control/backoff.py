"""How long to wait before an engine that keeps failing is created again."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_S = 2.0
LONGEST_S = 300.0
STABLE_S = 30.0


@dataclass
class Backoff:
    """Failures of one engine. There is no wait after the first one. After each further one the wait doubles. If the engine has
    served for `STABLE_S`, its next failure counts as the first."""

    failures: int = 0
    why: str = ""
    until: float = 0.0

    def failed(self, why: str, served_s: float, now: float) -> None:
        """Count a failure of an engine that served for `served_s`. Times are a monotonic clock's, in seconds."""
        self.failures = 1 if served_s >= STABLE_S else self.failures + 1
        self.why = why
        self.until = now + (min(LONGEST_S, FIRST_S * 2.0 ** (self.failures - 2)) if self.failures > 1 else 0.0)

    def describe(self, now: float) -> str:
        times = "once" if self.failures == 1 else f"{self.failures} times in a row"
        return f"failed {times}, last: {self.why}; next try in {max(0.0, self.until - now):.0f} s"
