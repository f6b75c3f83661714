import asyncio

import pytest

from cluster.routing.admission_queue import AdmissionQueue, QueueFullError


class Places:
    """So many places, and a line for them."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.line: AdmissionQueue[str] = AdmissionQueue()
        self.broken = False

    def take(self) -> str | None:
        if self.broken:
            raise LookupError
        if self.free == 0:
            return None
        self.free -= 1
        return "place"

    def give_back(self, _: str) -> None:
        self.free += 1
        self.line.advance()

    async def get(self, length: int = 9, timeout_s: float = 5.0) -> str:
        return await self.line.get(self.take, self.give_back, length, timeout_s)


async def test_a_free_place_is_taken_at_once() -> None:
    assert await Places(1).get(length=0) == "place"


async def test_first_come_first_served() -> None:
    places, served = Places(0), []

    async def come(name: int) -> None:
        await places.get()
        served.append(name)

    tasks = [asyncio.create_task(come(i)) for i in range(5)]
    await asyncio.sleep(0)
    for _ in range(5):
        places.give_back("place")
        await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)
    assert served == [0, 1, 2, 3, 4]


async def test_none_overtakes_those_who_wait() -> None:
    places = Places(0)
    first = asyncio.create_task(places.get())
    await asyncio.sleep(0)
    places.free = 1  # and none was told
    second = asyncio.create_task(places.get())
    await asyncio.sleep(0)
    places.line.advance()
    assert await first == "place"
    assert not second.done()
    second.cancel()


async def test_the_line_is_bounded_in_length_and_time() -> None:
    places = Places(0)
    waiting = asyncio.create_task(places.get(timeout_s=0.05))
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await places.get(length=1)
    with pytest.raises(QueueFullError):
        await waiting
    assert len(places.line) == 0


async def test_who_leaves_takes_nothing_along() -> None:
    places = Places(0)
    for told in (False, True):
        waiting = asyncio.create_task(places.get())
        await asyncio.sleep(0)
        if told:
            places.give_back("place")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(places.line) == 0
    assert places.free == 1


async def test_what_goes_wrong_reaches_everyone_who_waits() -> None:
    places = Places(0)
    waiting = [asyncio.create_task(places.get()) for _ in range(2)]
    await asyncio.sleep(0)
    places.broken = True
    places.line.advance()
    for task in waiting:
        with pytest.raises(LookupError):
            await task
