"""How many requests may be open at once."""

from __future__ import annotations

import asyncio
import random

import pytest

from roquet.remoting.outgoing import RequestSlots
from tests.unit.remoting.net_kit import turns


async def waiting(slots: RequestSlots, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.ensure_future(slots.take()) for _ in range(count)]
    await turns()
    return tasks


async def test_slots_are_acquired_and_released() -> None:
    slots = RequestSlots(2)
    assert [slots.take_free() for _ in range(3)] == [True, True, False]
    slots.give_back()
    await slots.take()
    assert not slots.take_free()


async def test_the_longest_waiter_is_next_and_no_other_overtakes_it() -> None:
    slots = RequestSlots(1)
    await slots.take()
    first, second = await waiting(slots, 2)
    slots.give_back()
    assert not slots.take_free()
    await turns()
    assert (first.done(), second.done()) == (True, False)
    slots.give_back()
    await second
    slots.give_back()
    assert slots.take_free()


async def test_a_waiter_that_gives_up_before_its_turn_takes_nothing() -> None:
    slots = RequestSlots(1)
    await slots.take()
    first, second = await waiting(slots, 2)
    first.cancel()
    slots.give_back()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    slots.give_back()
    assert slots.take_free()
    assert not slots.take_free()


async def test_a_waiter_that_gives_up_in_its_turn_passes_it_on() -> None:
    slots = RequestSlots(1)
    await slots.take()
    first, second = await waiting(slots, 2)
    slots.give_back()
    first.cancel()
    await second
    assert first.cancelled()
    slots.give_back()
    assert slots.take_free()


@pytest.mark.parametrize("seed", range(20))
async def test_no_slot_is_lost_or_created(seed: int) -> None:
    chance = random.Random(seed)
    slots = RequestSlots(3)
    open_now = most = 0

    async def use() -> None:
        nonlocal open_now, most
        await slots.take()
        try:
            open_now += 1
            most = max(most, open_now)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        finally:
            open_now -= 1
            slots.give_back()

    tasks = [asyncio.ensure_future(use()) for _ in range(60)]
    for _ in range(40):
        chance.choice(tasks).cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (open_now, most) == (0, 3), f"seed {seed}"
    assert [slots.take_free() for _ in range(4)] == [True, True, True, False], f"seed {seed}"
