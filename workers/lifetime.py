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
from typing import Protocol

from workers import watchdog as watchdog_process

_LOG = logging.getLogger(__name__)

CHECK_EVERY_S = 0.5
WATCHDOG_SILENCE_S = 30.0
"""A process that has shown no life for less than this may only be busy."""


class Drainable(Protocol):
    """An engine that can be told to refuse new requests."""

    draining: bool

    @property
    def in_flight(self) -> int:
        """Requests that are not answered to the end."""


class Lifetime:
    """Drains and ends an engine when no controller has called it for `orphan_after_s` and none lives.

    It runs in a thread of its own, so that an engine that is loading or hangs does not stop it. If the whole process hangs, its
    watchdog ends it after the same time, or after 30 s if that is longer.
    """

    def __init__(
        self,
        orphan_after_s: float,
        drain_s: float,
        engine: Drainable,
        controller_lives: Callable[[], bool],
        end: Callable[[], None],
    ) -> None:
        """Running requests get `drain_s` seconds to finish; then `end` is called."""
        self._orphan_after_s = orphan_after_s
        self._drain_s = drain_s
        self._engine = engine
        self._controller_lives = controller_lives
        self._end = end
        self._heard_at = time.monotonic()
        self._drained_by = 0.0

    def heard(self) -> None:
        """A controller called; if the engine drains, it serves again."""
        self._heard_at = time.monotonic()
        self._engine.draining = False

    def run(self) -> None:
        """Return when the engine has been ended."""
        watchdog = Watchdog(max(self._orphan_after_s, WATCHDOG_SILENCE_S))
        while not self.check(time.monotonic()):
            watchdog.pet()
            time.sleep(CHECK_EVERY_S)
        self._end()

    def check(self, now: float) -> bool:
        """Whether to end the engine now."""
        if now < self._heard_at + self._orphan_after_s:
            return False
        if not self._engine.draining:
            if self._controller_lives():
                # Its calls are late, on a busy machine or from a controller that is just starting.
                self.heard()
                return False
            _LOG.warning("no controller for %g s, and none lives: the engine drains and ends", self._orphan_after_s)
            self._engine.draining, self._drained_by = True, now + self._drain_s
        return not self._engine.in_flight or now >= self._drained_by


class Watchdog:
    """The process of watchdog.py, in this process's group. It ends the group unless it is petted in time."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-S", watchdog_process.__file__, str(self._silence_s)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)

    def pet(self) -> None:
        """Show that this process does not hang. Starts the watchdog again if it has ended: SGLang may end all that its
        process started."""
        if self._process.poll() is not None:
            self._process = self._start()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has just been ended; the next call starts another
            self._process.stdin.write(b".")


def lead_a_process_group() -> None:
    """Put this process and all that it will start into a group that can be ended as one. Ray does so by default."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)


def end_process_group() -> None:
    """End this process and all that it started, at once."""
    _LOG.warning("process %d ends itself and all that it started", os.getpid())
    os.killpg(os.getpgrp(), signal.SIGKILL)
