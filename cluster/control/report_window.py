"""Recent figures of one engine, from differences between its reports."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from cluster.messages.report import EngineReport


class _Totals(NamedTuple):
    """What is kept of a report. Whole reports of a large fleet would keep the garbage collector busy."""

    at: float
    tokens: int
    requests: int
    reached: tuple[int, ...]
    accepted: tuple[int, ...]


class ReportWindow:
    """Totals of the last `span_s` seconds. It starts empty again when the engine has restarted."""

    def __init__(self, span_s: float = 5.0) -> None:
        self._span_s = span_s
        self._incarnation = 0
        self._totals: deque[_Totals] = deque()

    def add(self, now: float, report: EngineReport) -> None:
        if report.incarnation != self._incarnation:
            self._incarnation = report.incarnation
            self._totals.clear()
        self._totals.append(_Totals(now, report.tokens, report.requests, report.acceptance.reached, report.acceptance.accepted))
        while len(self._totals) > 2 and self._totals[1].at <= now - self._span_s:
            self._totals.popleft()

    def accept_length(self) -> float | None:
        """Tokens that a step yields for one request; None without a step."""
        first, last = self._totals[0], self._totals[-1]
        requests = last.requests - first.requests
        return (last.tokens - first.tokens) / requests if requests else None

    def goodput(self) -> float | None:
        """Tokens per second; None before the second report."""
        first, last = self._totals[0], self._totals[-1]
        return (last.tokens - first.tokens) / (last.at - first.at) if last.at > first.at else None

    def acceptance(self) -> tuple[float | None, ...]:
        """Conditional acceptance by draft position; None where no draft reached the position."""
        first, last = self._totals[0], self._totals[-1]
        reached = [b - a for a, b in zip(first.reached, last.reached, strict=True)]
        accepted = [b - a for a, b in zip(first.accepted, last.accepted, strict=True)]
        return tuple(a / r if r > 0 else None for a, r in zip(accepted, reached, strict=True))
