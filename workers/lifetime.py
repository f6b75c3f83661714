"""When an engine ends itself: a controller that is gone must leave no engine behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from workers import watchdog

_LOG = logging.getLogger(__name__)

CHECK_EVERY_S = 0.5
GUARD_SILENCE_S = 30.0


class Lifetime:
    """Drains and ends an engine that no controller has called for `orphan_after_s` and for which none lives.

    Runs in a thread of its own: neither an engine that is still loading nor one that hangs keeps it from its work. Should
    the whole process hang, its watchdog ends it after the same time, but not before 30 s: a busy one is no hung one.
    """

    def __init__(
        self,
        orphan_after_s: float,
        drain_s: float,
        controller_lives: Callable[[], bool],
        in_flight: Callable[[], int],
        end: Callable[[], None],
    ) -> None:
        self.draining = False
        """Whether it takes no more requests. A controller that calls after all ends that."""
        self._orphan_after_s = orphan_after_s
        self._drain_s = drain_s
        self._controller_lives = controller_lives
        self._in_flight = in_flight
        self._end = end
        self._heard_at = time.monotonic()
        self._drained_by = 0.0

    def heard(self) -> None:
        """A controller called."""
        self._heard_at = time.monotonic()
        self.draining = False

    def run(self) -> None:
        """Return when the engine has been ended."""
        watched = Watchdog(max(self._orphan_after_s, GUARD_SILENCE_S))
        while not self.check(time.monotonic()):
            watched.pet()
            time.sleep(CHECK_EVERY_S)
        self._end()

    def check(self, now: float) -> bool:
        """Whether the time to end has come."""
        if now < self._heard_at + self._orphan_after_s:
            return False
        if not self.draining:
            if self._controller_lives():
                # Its calls are late, on a busy machine or from a controller that is just starting.
                self.heard()
                return False
            _LOG.warning("no controller for %g s, and none lives: the engine drains and ends", self._orphan_after_s)
            self.draining, self._drained_by = True, now + self._drain_s
        return not self._in_flight() or now >= self._drained_by


class Watchdog:
    """The process of watchdog.py, in the process group of this one."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-S", watchdog.__file__, str(self._silence_s)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)

    def pet(self) -> None:
        """Show that this process does not hang. SGLang may end all that its process started; then there is a new watchdog."""
        if self._process.poll() is not None:
            self._process = self._start()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has just been ended; the next call starts another
            self._process.stdin.write(b".")


def lead_a_process_group() -> None:
    """Make all processes that this one starts a group, which can be ended as one. Ray does so too, where it is not told
    otherwise."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)


def end_process_group() -> None:
    """End this process and all that it started, at once."""
    _LOG.warning("process %d ends itself and all that it started", os.getpid())
    os.killpg(os.getpgrp(), signal.SIGKILL)
