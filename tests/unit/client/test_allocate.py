"""Strategies of sharing queues, beside the results of Apache RocketMQ 5.4.0's classes.

The file of results has a line a share: how many queues, how many clients, the strategy and its
number of virtual nodes, the client, and its queues.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.client import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocateStrategy,
)
from roquet.errors import ConfigError
from roquet.model.message_queue import MessageQueue

SHARES = (Path(__file__).parent / "data" / "allocate-5.4.0.txt").read_text().splitlines()

STRATEGIES: dict[str, AllocateStrategy] = {
    "AVG": AllocateAveragely(),
    "AVG_BY_CIRCLE": AllocateAveragelyByCircle(),
    "CONSISTENT_HASH/10": AllocateByConsistentHash(),
    "CONSISTENT_HASH/3": AllocateByConsistentHash(3),
}

ROOM_QUEUES = sorted(
    [
        MessageQueue("Orders", f"{r}@a", i)
        for r in ("north", "south", "west", "east@")
        for i in (0, 1, 2)
    ]
    + [MessageQueue("Orders", "north@", i) for i in (0, 1)]
)
ROOM_CLIENTS = ["north-1", "south-1", "south-2"]


def queues_of(count: int) -> list[MessageQueue]:
    return sorted(
        MessageQueue("Orders", "broker-b" if each % 2 else "broker-a", each // 2)
        for each in range(count)
    )


def clients_of(count: int) -> list[str]:
    return sorted(f"10.0.0.{each + 1}@4711#{each * 17}" for each in range(count))


def shown(queues: list[MessageQueue]) -> str:
    return ",".join(f"{each.broker_name}:{each.queue_id}" for each in queues)


def nearby() -> AllocateMachineRoomNearby:
    return AllocateMachineRoomNearby(
        AllocateAveragely(),
        room_of_queue=lambda queue: queue.broker_name.partition("@")[0],
        room_of_client=lambda client_id: client_id.partition("-")[0],
    )


@pytest.mark.parametrize("line", SHARES)
def test_shares_equal_javas(line: str) -> None:
    queue_count, client_count, name, client_id, share = line.split("|")
    strategy = STRATEGIES[name]
    assert strategy.name == name.partition("/")[0]
    found = strategy.allocate(client_id, queues_of(int(queue_count)), clients_of(int(client_count)))
    assert shown(found) == share


@pytest.mark.parametrize(
    ("client_id", "share"),
    [
        ("north-1", "north@a:0,north@a:1,north@a:2"),
        ("south-1", "south@a:0,south@a:1,south@a:2"),
        ("south-2", "west@a:0,west@a:1,west@a:2"),
    ],
)
def test_machine_rooms(client_id: str, share: str) -> None:
    strategy = AllocateByMachineRoom({"north", "south", "west"})
    assert shown(strategy.allocate(client_id, ROOM_QUEUES, ROOM_CLIENTS)) == share
    assert strategy.name == "MACHINE_ROOM"


def test_the_remainder_of_machine_rooms_goes_to_the_first() -> None:
    strategy = AllocateByMachineRoom({"north"})
    queues = [MessageQueue("Orders", "north@a", each) for each in range(5)]
    assert shown(strategy.allocate("x", queues, ["x", "y"])) == "north@a:0,north@a:1,north@a:4"
    assert shown(strategy.allocate("y", queues, ["x", "y"])) == "north@a:2,north@a:3"


@pytest.mark.parametrize(
    ("client_id", "share"),
    [
        (
            "north-1",
            "north@:0,north@:1,north@a:0,north@a:1,north@a:2,east@@a:0,west@a:0",
        ),
        ("south-1", "south@a:0,south@a:1,east@@a:1,west@a:1"),
        ("south-2", "south@a:2,east@@a:2,west@a:2"),
    ],
)
def test_machine_rooms_nearby(client_id: str, share: str) -> None:
    assert shown(nearby().allocate(client_id, ROOM_QUEUES, ROOM_CLIENTS)) == share
    assert nearby().name == "MACHINE_ROOM_NEARBY-AVG"


def test_an_unknown_room_is_an_error() -> None:
    with pytest.raises(ConfigError, match="machine room"):
        nearby().allocate("north-1", [MessageQueue("Orders", "@a", 0)], ROOM_CLIENTS)


@pytest.mark.parametrize("strategy", [*STRATEGIES.values(), AllocateByMachineRoom({"a"}), nearby()])
def test_an_unknown_client_gets_nothing(strategy: AllocateStrategy) -> None:
    assert strategy.allocate("stranger", queues_of(4), clients_of(2)) == []
    assert strategy.allocate("stranger", queues_of(4), []) == []


@pytest.mark.parametrize("strategy", STRATEGIES.values())
def test_every_queue_has_one_client(strategy: AllocateStrategy) -> None:
    queues, clients = queues_of(23), clients_of(6)
    shares = [each for client in clients for each in strategy.allocate(client, queues, clients)]
    assert sorted(shares) == queues


def test_by_config() -> None:
    mine = queues_of(2)
    assert AllocateByConfig(mine).allocate("x", queues_of(8), []) == mine


def test_an_empty_ring() -> None:
    assert AllocateByConsistentHash(0).allocate("x", queues_of(4), ["x"]) == []
    with pytest.raises(ConfigError, match="virtual_nodes"):
        AllocateByConsistentHash(-1)


def test_another_hash() -> None:
    ring = AllocateByConsistentHash(1, hash_of=lambda text: 0 if text.startswith("M") else 1)
    assert ring.allocate("x", queues_of(4), ["x"]) == queues_of(4)
