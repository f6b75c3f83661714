from __future__ import annotations

import asyncio
import ctypes
import re
import threading
from pathlib import Path

from serve_app import memory

SIZE, PIECES = 4096, 10_000


def resident() -> int:
    (kib,) = re.findall(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kib) * 1024


def fragment() -> int:
    """Free nearly all that a thread allocated, but for its last piece: glibc alone would give nothing back."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    pieces = [libc.malloc(SIZE) for _ in range(PIECES)]
    for piece in pieces:
        ctypes.memset(piece, 1, SIZE)
    for piece in pieces[:-1]:
        libc.free(piece)
    return int(pieces[-1])


async def test_what_a_thread_freed_goes_back() -> None:
    done = threading.Event()
    thread = threading.Thread(target=lambda: (fragment(), done.wait()))
    thread.start()
    await asyncio.sleep(0.3)
    before = resident()
    giving = asyncio.create_task(memory.give_back(every_s=0.01))
    await asyncio.sleep(0.3)
    giving.cancel()
    done.set()
    thread.join()
    assert before - resident() > SIZE * PIECES / 2
