"""Closed connections and notified groups, a bounded number in each turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.service.closed_connections import GROUPS_A_TURN, ClosedConnectionCleaner
from roquet.broker.service.consumer_notices import TOLD_A_TURN, ConsumerNotices
from roquet.broker.service.timers import LoopTimers
from roquet.remoting.connection import Connection
from tests.unit.broker.manager.kit import FakeConnection, channel


class Table:
    """Groups by connection, as many as each has."""

    def __init__(self, groups: dict[Connection, int]) -> None:
        self.groups = groups
        self.dropped: list[int] = []

    def drop(self, connection: Connection, limit: int) -> int:
        dropped = min(limit, self.groups.get(connection, 0))
        self.groups[connection] = self.groups.get(connection, 0) - dropped
        self.dropped.append(dropped)
        return dropped


def run(soon: list[Callable[[], None]]) -> None:
    todo, soon[:] = soon[:], []
    for each in todo:
        each()


def test_a_connection_of_few_groups_is_dropped_at_once() -> None:
    connection = cast("Connection", FakeConnection())
    table = Table({connection: 3})
    soon: list[Callable[[], None]] = []
    ClosedConnectionCleaner([table.drop], soon.append).connection_closed(connection)
    assert table.groups[connection] == 0
    run(soon)
    assert soon == []


def test_connections_of_many_groups_are_dropped_in_turns() -> None:
    connections = [cast("Connection", FakeConnection()) for _ in range(3)]
    tables = [Table(dict.fromkeys(connections, 2 * GROUPS_A_TURN)) for _ in range(2)]
    soon: list[Callable[[], None]] = []
    leaving = ClosedConnectionCleaner([table.drop for table in tables], soon.append)
    before = 0
    for connection in connections:
        leaving.connection_closed(connection)
    turns = 0
    while soon:
        total = sum(sum(table.dropped) for table in tables)
        assert total - before <= GROUPS_A_TURN
        before = total
        run(soon)
        turns += 1
    assert sum(sum(table.groups.values()) for table in tables) == 0
    assert 12 <= turns <= 16


class Told(FakeConnection):
    """A connection that counts its notifications."""

    def __init__(self, told: list[object]) -> None:
        super().__init__()
        self.told = told

    def send_oneway(self, _code: int, header: object) -> None:
        self.told.append(header)


async def test_clients_are_notified_a_few_in_each_turn() -> None:
    told: list[object] = []
    clients: list[ClientChannel] = [
        channel(on=cast("Connection", Told(told))) for _ in range(3 * TOLD_A_TURN)
    ]
    notices = ConsumerNotices(LoopTimers())
    for group in ("g", "g", "h"):
        notices.notify(group, clients)
    before = 0
    for _ in range(8):
        await asyncio.sleep(0)
        assert len(told) - before <= TOLD_A_TURN
        before = len(told)
    assert len(told) == 6 * TOLD_A_TURN
    notices.notify("g", clients[:1])
    await asyncio.sleep(0)
    assert len(told) == 6 * TOLD_A_TURN + 1
