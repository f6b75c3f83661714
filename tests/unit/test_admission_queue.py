import asyncio

import pytest

from cluster.routing.admission_queue import AdmissionQueue, QueueFullError, QueueLimits
from cluster.routing.router import Router, Slot
from tests.unit.builders import routed
from tests.unit.test_router import engine, router


class OneEngine:
    """A queue before a router with one engine that has room for this many requests."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.router: Router = router(engine("a"))
        self.queue = AdmissionQueue(self.router)

    async def reserve(self, length: int = 9, timeout_s: float = 60.0) -> Slot:
        return await self.queue.reserve(routed(), (), QueueLimits(self.room, length, timeout_s))


async def wait_in(queue: AdmissionQueue, count: int) -> None:
    while len(queue) < count:
        await asyncio.sleep(0)


async def test_a_free_slot_is_given_at_once() -> None:
    assert (await OneEngine(1).reserve(length=0)).engine.actor == "a"


async def test_first_come_first_served() -> None:
    one, served = OneEngine(1), []
    slots = [await one.reserve()]

    async def come(name: int) -> None:
        slots.append(await one.reserve())
        served.append(name)

    tasks = []
    for name in range(5):
        tasks.append(asyncio.create_task(come(name)))
        await wait_in(one.queue, name + 1)
    for task in tasks:
        one.queue.release(slots.pop())
        await task
    assert served == [0, 1, 2, 3, 4]


async def test_nobody_overtakes_those_who_wait() -> None:
    one = OneEngine(1)
    slot = await one.reserve()
    first = asyncio.create_task(one.reserve())
    await wait_in(one.queue, 1)
    one.router.release(slot)  # and the queue does not know yet
    second = asyncio.create_task(one.reserve())
    await wait_in(one.queue, 2)
    one.queue.advance()
    await first
    assert not second.done()
    second.cancel()


async def test_the_queue_is_bounded_in_length_and_time() -> None:
    one = OneEngine(1)
    await one.reserve()
    waiting = asyncio.create_task(one.reserve(timeout_s=0.05))
    await wait_in(one.queue, 1)
    with pytest.raises(QueueFullError):
        await one.reserve(length=1)
    with pytest.raises(QueueFullError):
        await waiting
    assert len(one.queue) == 0


@pytest.mark.parametrize("given", [False, True], ids=["before it has a slot", "with a slot"])
async def test_whoever_leaves_takes_no_slot_along(given: bool) -> None:
    one = OneEngine(1)
    slot = await one.reserve()
    leaving, next_one = (asyncio.create_task(one.reserve()) for _ in range(2))
    await wait_in(one.queue, 2)
    if given:
        one.queue.release(slot)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    if not given:
        one.queue.release(slot)
    one.queue.release(await next_one)
    assert len(one.queue) == 0
    assert one.router.in_flight == {"a": 0}
