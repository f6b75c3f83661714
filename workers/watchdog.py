"""Ends an engine whose actor has died or hangs: `python watchdog.py SECONDS`, started by the actor with a pipe to its stdin.

When no byte has come in for SECONDS, or the pipe is closed, it sends SIGKILL to the whole process group: the actor, everything
that the actor has started, and this process. SIGKILL also ends processes that are stopped, and no controller or Ray has to help.
This imports nothing but the standard library, so that it starts at once and takes little memory.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def main() -> None:
    silence_s = float(sys.argv[1])
    while select.select([0], [], [], silence_s)[0]:
        if not os.read(0, 4096):
            break
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
