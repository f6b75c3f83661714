"""Counters in memory that two processes share."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import psutil
import pytest

from workers import shared_counters
from workers.shared_counters import SharedCounters, SharedCountersReader

WAIT_S = 60.0  # generous: only a broken reader takes so long

WRITER = """
import os, signal, sys
from pathlib import Path
from workers.shared_counters import SharedCounters
counters = SharedCounters.create(Path(sys.argv[1]), candidates=[0, 1], sizes=[1])
with counters.writing():
    counters.tokens[()] = 1
    os.kill(os.getpid(), signal.SIGSTOP)
    counters.requests[()] = 1
sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[psutil.Process]:
    """A process that has stopped itself in the middle of a write."""
    with psutil.Popen([sys.executable, "-c", WRITER, str(tmp_path / "rank0")], stdin=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + WAIT_S
            while process.status() != psutil.STATUS_STOPPED:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


async def test_a_writer_stopped_in_the_middle_of_a_write_is_waited_for(writer: psutil.Process, tmp_path: Path) -> None:
    reader = SharedCountersReader(tmp_path / "rank0")
    assert reader.try_read() is None
    reading = asyncio.ensure_future(reader.read())
    await asyncio.sleep(0.2)
    assert not reading.done(), "it gave up on a writer that lives, or saw half a write"
    writer.resume()
    counters = await asyncio.wait_for(reading, WAIT_S)
    assert (int(counters.tokens), int(counters.requests)) == (1, 1)


def test_a_copy_stays_as_it_was(tmp_path: Path) -> None:
    counters = SharedCounters.create(tmp_path / "rank0", candidates=[0, 2], sizes=[1, 2, 4, 8])
    reader = SharedCountersReader(tmp_path / "rank0")
    before = reader.try_read()
    with counters.writing():
        counters.tokens[()] += 5
        counters.seconds[2, 3] = 0.5
    after = reader.try_read()
    assert before is not None
    assert after is not None
    assert (int(before.tokens), int(after.tokens)) == (0, 5)
    assert (float(before.seconds[2, 3]), float(after.seconds[2, 3])) == (0.0, 0.5)
    assert after.candidates.tolist() == [1, 0, 1]
    assert after.sizes.tolist() == [1, 2, 4, 8]


def test_a_foreign_block_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank0").write_bytes(bytes(4096))
    with pytest.raises(ValueError, match="no counter block"):
        SharedCountersReader(tmp_path / "rank0")


def test_the_attributes_are_the_block_s_fields() -> None:
    layout = shared_counters._layout(4, 2)
    names = set(layout.names or ()) - {name for name, _ in shared_counters._HEADER}
    assert set(get_type_hints(SharedCounters)) == names


def test_every_number_is_aligned() -> None:
    """One that is not could be read half written."""
    layout = shared_counters._layout(4, 3)
    assert all(offset % 8 == 0 for _, offset, *_ in (layout.fields or {}).values())
