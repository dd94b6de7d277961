"""Java and Roquet as each other's replicas: the same log, byte for byte."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.interop.cluster import APACHE, ROQUET
from tests.interop.ha_pair import HaPair, producer_of, send_some, settle

pytestmark = pytest.mark.interop

PART = 700


@pytest.mark.usefixtures("java_toolkit")
@pytest.mark.parametrize(
    "sides",
    [
        pytest.param((ROQUET, APACHE), id="java-slave"),
        pytest.param((APACHE, ROQUET), id="java-master"),
        # Shows that the scenario itself is right.
        pytest.param((APACHE, APACHE), id="java-pair", marks=pytest.mark.slow),
    ],
)
async def test_logs_are_equal_after_restarts_of_both_sides(
    sides: tuple[str, str], tmp_path: Path
) -> None:
    with HaPair(tmp_path, sides, {}) as pair:
        await asyncio.gather(*(asyncio.to_thread(pair.start, number) for number in (0, 1)))
        async with producer_of(pair) as producer:
            await send_some(producer, 0, 50)
            await asyncio.to_thread(pair.wait_same)
            await send_some(producer, 50, PART)
            await asyncio.to_thread(pair.stop, 1)
            await send_some(producer, 50 + PART, PART)
            await asyncio.to_thread(pair.start, 1)
            await send_some(producer, 50 + 2 * PART, PART)
            await asyncio.to_thread(pair.stop, 0)
            await asyncio.to_thread(pair.start, 0)
            await send_some(producer, 50 + 3 * PART, PART)
        assert await settle(pair) > 1 << 20
        for number in (0, 1):
            pair.stop(number)
        assert pair.log(0) == pair.log(1)
