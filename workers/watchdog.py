"""Ends an engine whose actor has died or hangs: `python watchdog.py SECONDS`, started by the actor with a pipe to its stdin.

As long as a byte comes in every SECONDS nothing happens. Else SIGKILL goes to the whole process group: the actor, all that
it has started, and this process. It ends processes that are stopped, and needs nobody's help: no controller's, no Ray's.
Imports nothing but the standard library, so that it starts at once and takes little memory.
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
