"""Recent figures of one engine, from differences between its reports."""

from __future__ import annotations

from collections import deque

from cluster.protocol import EngineReport


class ReportWindow:
    """Reports of the last `span_s` seconds. An engine that restarted starts an empty window."""

    def __init__(self, span_s: float = 5.0) -> None:
        self._span_s = span_s
        self._reports: deque[tuple[float, EngineReport]] = deque()

    def add(self, now: float, report: EngineReport) -> None:
        if self._reports and self._reports[-1][1].incarnation != report.incarnation:
            self._reports.clear()
        self._reports.append((now, report))
        while len(self._reports) > 2 and self._reports[1][0] <= now - self._span_s:
            self._reports.popleft()

    def accept_length(self) -> float | None:
        """Tokens a step yields for one request; None without a step."""
        first, last = self._reports[0][1], self._reports[-1][1]
        requests = last.requests - first.requests
        return (last.tokens - first.tokens) / requests if requests else None

    def goodput(self) -> float | None:
        """Tokens a second; None before the second report."""
        (start, first), (end, last) = self._reports[0], self._reports[-1]
        return (last.tokens - first.tokens) / (end - start) if end > start else None

    def acceptance(self) -> tuple[float | None, ...]:
        """Conditional acceptance by draft position; None where no draft got there."""
        first, last = self._reports[0][1], self._reports[-1][1]
        return tuple(
            (b.accepted - a.accepted) / (b.reached - a.reached) if b.reached > a.reached else None
            for a, b in zip(first.acceptance, last.acceptance, strict=True)
        )
