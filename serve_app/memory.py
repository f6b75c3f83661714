"""Memory that a replica has freed goes back to the system."""

from __future__ import annotations

import asyncio
import ctypes


async def give_back(every_s: float = 30.0) -> None:
    """Do it for ever.

    glibc keeps what a thread frees in that thread's own heap, and Ray gives a replica some forty threads: it grows by a MiB a
    minute though what it uses stays the same.
    """
    libc = ctypes.CDLL(None)
    while True:
        await asyncio.sleep(every_s)
        # Takes milliseconds, without the GIL.
        await asyncio.to_thread(libc.malloc_trim, 0)
