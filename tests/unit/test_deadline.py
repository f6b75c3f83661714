import asyncio
import time

import pytest

from cluster.routing.deadline import Deadline, DeadlineError


async def test_it_holds_over_many_awaits() -> None:
    deadline = Deadline(0.1)
    began = time.monotonic()

    async def work() -> None:
        while True:
            await deadline.wait(asyncio.sleep(0.03))

    with pytest.raises(DeadlineError):
        await work()
    assert time.monotonic() - began >= 0.1
    with pytest.raises(DeadlineError):
        await deadline.wait(asyncio.sleep(0))


async def test_results_and_errors_pass() -> None:
    deadline = Deadline(600)

    async def fail() -> None:
        raise KeyError

    assert await deadline.wait(asyncio.sleep(0, "result")) == "result"
    with pytest.raises(KeyError):
        await deadline.wait(fail())
    deadline.cancel()


async def test_a_task_that_met_its_deadline_lives_on_and_can_still_be_cancelled() -> None:
    deadline = Deadline(0.01)

    async def work() -> None:
        with pytest.raises(DeadlineError):
            await deadline.wait(asyncio.sleep(600))
        await asyncio.wait_for(asyncio.sleep(0), 60)
        met.set()
        await asyncio.sleep(600)

    met = asyncio.Event()
    task = asyncio.create_task(work())
    await asyncio.wait_for(met.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_from_elsewhere_is_no_deadline() -> None:
    deadline = Deadline(600)
    task = asyncio.create_task(deadline.wait(asyncio.sleep(600)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadline.cancel()
