from __future__ import annotations

import os
from datetime import datetime

import pytest

from roquet.client import ClientOptions
from roquet.client.ids import UniqueIds, client_id_of
from roquet.model.message_id import UniqueId
from roquet.runtime.clock import ManualClock, SystemClock
from roquet.runtime.randomness import seeded


def local_ms(*parts: int) -> int:
    return int(datetime(*parts).astimezone().timestamp() * 1000)  # type: ignore[arg-type]


def test_a_client_id_has_address_instance_and_unit() -> None:
    options = ClientOptions(
        namesrv="h:1", client_ip="10.0.0.7", instance_name="blue", unit_name="room-1"
    )
    assert client_id_of(options, SystemClock()) == "10.0.0.7@blue@room-1"


def test_without_a_name_every_client_has_its_own() -> None:
    options = ClientOptions(namesrv="h:1", client_ip="10.0.0.7")
    clock = ManualClock()
    one = client_id_of(options, clock)
    clock.advance(1)
    other = client_id_of(options, clock)
    assert one == f"10.0.0.7@{os.getpid()}#0"
    assert other == f"10.0.0.7@{os.getpid()}#1000000"


def test_without_an_address_one_is_found() -> None:
    ip, _, _ = client_id_of(ClientOptions(namesrv="h:1"), SystemClock()).partition("@")
    assert ip.count(".") == 3


def test_an_id_tells_its_maker_and_time() -> None:
    clock = ManualClock(local_ms(2026, 11, 15, 12) + 7)
    ids = UniqueIds("10.0.0.7", clock, seeded(1))
    first, second = UniqueId.parse(ids.make()), UniqueId.parse(ids.make())
    assert first.ip == bytes([10, 0, 0, 7])
    assert first.process_id == os.getpid() & 0xFFFF
    assert first.millis_of_month == local_ms(2026, 11, 15, 12) + 7 - local_ms(2026, 11, 1)
    assert second.counter == first.counter + 1
    assert second[:4] == first[:4]


@pytest.mark.parametrize(
    ("before", "after"), [((2026, 11, 30), (2026, 12, 1)), ((2026, 12, 31), (2027, 1, 1))]
)
def test_a_new_month_starts_at_zero(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    start_ms = local_ms(*after)
    clock = ManualClock(start_ms - 1)
    ids = UniqueIds("::1", clock, seeded(1))
    assert UniqueId.parse(ids.make()).millis_of_month == start_ms - 1 - local_ms(*before[:2], 1)
    clock.advance(1)
    assert UniqueId.parse(ids.make()).millis_of_month == 0


def test_a_clock_set_back_into_the_last_month_makes_valid_ids() -> None:
    clock = ManualClock(local_ms(2026, 12, 1))
    ids = UniqueIds("10.0.0.7", clock, seeded(1))
    ids.make()
    clock.set(local_ms(2026, 11, 30))
    expected = local_ms(2026, 11, 30) - local_ms(2026, 11, 1)
    assert UniqueId.parse(ids.make()).millis_of_month == expected


def test_two_clients_of_a_process_make_different_ids() -> None:
    clock = ManualClock()
    one, other = (UniqueIds("10.0.0.7", clock, seeded(seed)) for seed in (1, 2))
    assert one.make() != other.make()


def test_a_name_is_an_address_too() -> None:
    assert len(UniqueIds("localhost", ManualClock(), seeded(1)).make()) in {32, 56}
