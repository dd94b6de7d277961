"""Producers register, stay and leave."""

from __future__ import annotations

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.manager import producer as module
from roquet.broker.manager.producer import ProducerManager
from roquet.runtime.clock import ManualClock
from tests.unit.broker.manager.kit import channel, connection, warnings_of


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def producers(clock: ManualClock) -> ProducerManager:
    return ProducerManager(BrokerConfig(), clock)


def ids(producers: ProducerManager, group: str) -> list[str]:
    return [each.client_id for each in producers.groups.get(group, {}).values()]


def test_a_producer_registers_and_unregisters(producers: ProducerManager) -> None:
    first, second = channel("a"), channel("b")
    producers.register("g", first)
    producers.register("g", first)
    producers.register("g", second)
    producers.register("h", second)
    assert ids(producers, "g") == ["a", "b"]
    producers.unregister("g", first)
    producers.unregister("g", first)
    producers.unregister("unknown", first)
    assert ids(producers, "g") == ["b"]
    producers.unregister("g", second)
    assert set(producers.groups) == {"h"}


def test_a_closed_connection_removes_its_groups(producers: ProducerManager) -> None:
    shared, other = connection(), connection()
    producers.register("g", channel("a", shared))
    producers.register("h", channel("a", shared))
    producers.register("h", channel("b", other))
    producers.connection_closed(shared)
    producers.connection_closed(shared)
    assert {group: ids(producers, group) for group in producers.groups} == {"h": ["b"]}
    producers.register("g", channel("a", shared))
    producers.unregister("g", channel("a", shared))
    producers.connection_closed(other)
    assert producers.groups == {}
    assert producers._groups_of == {}


def test_a_silent_producer_is_dropped_and_closed(
    producers: ProducerManager, clock: ManualClock
) -> None:
    silent, busy = channel("silent"), channel("busy")
    producers.register("g", silent)
    producers.register("g", busy)
    clock.advance(60_000)
    producers.register("g", busy)
    clock.advance(60_000)
    list(producers.scan())
    assert ids(producers, "g") == ["silent", "busy"], "two minutes are allowed"
    clock.advance(1)
    list(producers.scan())
    assert ids(producers, "g") == ["busy"]
    assert silent.connection.is_closed
    assert not busy.connection.is_closed
    clock.advance(60_000)
    list(producers.scan())
    assert producers.groups == {}


def test_groups_of_one_heartbeat_expire_one_by_one(
    producers: ProducerManager, clock: ManualClock
) -> None:
    shared = channel("a")
    producers.register("g", shared)
    producers.register("h", shared)
    clock.advance(100_000)
    producers.register("h", shared)
    clock.advance(100_000)
    list(producers.scan())
    assert set(producers.groups) == {"h"}


def test_setting_the_clock_removes_no_producer(
    producers: ProducerManager, clock: ManualClock
) -> None:
    producers.register("g", channel())
    clock.set(clock.now_ms() + 10_000_000)
    list(producers.scan())
    assert ids(producers, "g") == ["c1"]


def test_open_channels_take_turns(producers: ProducerManager) -> None:
    assert producers.available_channel("g") is None
    channels = [channel(client_id) for client_id in "abc"]
    for each in channels:
        producers.register("g", each)
    channels[1].connection.close()
    taken = [producers.available_channel("g") for _ in range(4)]
    assert {each.client_id for each in taken if each is not None} == {"a", "c"}
    assert taken[0] is taken[2] is not taken[1] is taken[3]
    channels[0].connection.close()
    channels[2].connection.close()
    assert producers.available_channel("g") is None


def test_new_producers_can_be_skipped(clock: ManualClock) -> None:
    config = BrokerConfig(register_producer=False, reject_transaction_message=True)
    producers = ProducerManager(config, clock)
    producers.register("g", channel())
    assert producers.groups == {}
    still_needed = ProducerManager(BrokerConfig(register_producer=False), clock)
    still_needed.register("g", channel())
    assert ids(still_needed, "g") == ["c1"]


def test_a_client_cannot_fill_the_table(
    producers: ProducerManager,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "GROUPS_PER_CONNECTION_MAX", 2)
    shared, longest = connection(), "g" * 120
    for group in ("", "a" + longest, "a", longest, "c", "a"):
        producers.register(group, channel("x", shared))
    assert set(producers.groups) == {"a", longest}
    assert warnings_of(caplog) == [
        "Producer group '' was refused: the name is empty or too long"
    ], "and not for each again"
    producers.register("c", channel("y"))
    assert ids(producers, "c") == ["y"]
    producers.unregister("a", channel("x", shared))
    producers.register("c", channel("x", shared))
    assert ids(producers, "c") == ["y", "x"]


def test_a_client_is_found_while_any_of_its_groups_remains(producers: ProducerManager) -> None:
    shared = connection()
    producers.register("g", channel("a", shared))
    producers.register("CLIENT_INNER_PRODUCER", channel("a", shared))
    found = producers.find_channel("a")
    assert found is not None
    assert found.connection is shared
    assert producers.find_channel("b") is None
    producers.unregister("g", channel("a", shared))
    assert producers.find_channel("a") is not None, "upstream forgets it here"
    producers.connection_closed(shared)
    assert producers.find_channel("a") is None
    assert producers._channels_of == {}


def test_of_several_connections_of_a_client_the_youngest_open_one_is_found(
    producers: ProducerManager,
) -> None:
    old, young = channel("a"), channel("a")
    producers.register("g", old)
    producers.register("g", young)
    found = producers.find_channel("a")
    assert found is not None
    assert found.connection is young.connection
    young.connection.close()
    found = producers.find_channel("a")
    assert found is not None
    assert found.connection is old.connection
    old.connection.close()
    assert producers.find_channel("a") is None
