"""Room for sends."""

from __future__ import annotations

import asyncio

import pytest

from roquet.client.back_pressure import InFlight


async def test_first_come_first_served() -> None:
    room = InFlight(10, 100)
    order: list[str] = []

    async def enter(name: str, size_bytes: int) -> None:
        await room.enter(size_bytes)
        order.append(name)

    await room.enter(90)
    large = asyncio.ensure_future(enter("large", 50))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(enter("small", 5))
    await asyncio.sleep(0)
    assert (order, room.waiting) == ([], 2)
    room.leave(90)
    await asyncio.gather(large, small)
    assert order == ["large", "small"]
    assert (room.count, room.held_bytes) == (2, 55)


async def test_an_oversized_send_goes_alone() -> None:
    room = InFlight(10, 100)
    assert room.try_enter(1_000)
    assert not room.try_enter(1)
    room.leave(1_000)
    assert room.try_enter(1)
    assert not room.try_enter(1_000)


@pytest.mark.parametrize("is_admitted_first", [False, True])
async def test_a_waiter_that_gives_up(*, is_admitted_first: bool) -> None:
    room = InFlight(1, 100)
    await room.enter(1)
    waits = asyncio.ensure_future(room.enter(1))
    behind = asyncio.ensure_future(room.enter(1))
    await asyncio.sleep(0)
    if is_admitted_first:
        room.leave(1)
    waits.cancel()
    if not is_admitted_first:
        room.leave(1)
    await behind
    assert waits.cancelled() or await asyncio.wait([waits])
    assert (room.count, room.held_bytes, room.waiting) == (1, 1, 0)


async def test_waiting_for_the_end() -> None:
    room = InFlight(2, 100)
    await room.wait_idle()
    await room.enter(1)
    await room.enter(1)
    ends = [asyncio.ensure_future(room.wait_idle()) for _ in range(2)]
    await asyncio.sleep(0)
    room.leave(1)
    await asyncio.sleep(0)
    assert not any(each.done() for each in ends)
    room.leave(1)
    await asyncio.gather(*ends)
