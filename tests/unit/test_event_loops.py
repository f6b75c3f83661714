import asyncio
import threading
from collections.abc import Iterator

import pytest

from workers import event_loops


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    other = asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever)
    thread.start()
    yield other
    other.call_soon_threadsafe(other.stop)
    thread.join()


def test_a_call_runs_in_the_other_loop(loop: asyncio.AbstractEventLoop) -> None:
    async def running() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert asyncio.run(event_loops.call(loop, running)) is loop
