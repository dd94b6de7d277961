"""How the members of a group share the queues of a topic.

Owns the strategies. Every member computes its own share from the same two sorted lists, so all of
them, whatever their language, must get the same result: the strategies match those of Apache
RocketMQ's Java client, queue for queue. A client that is not in its group's list gets nothing.

===================== =========================== ==============================================
strategy              name                        share of a client
===================== =========================== ==============================================
averagely             AVG                         a run of queues, of about the same length
by circle             AVG_BY_CIRCLE               every n-th queue
by consistent hash    CONSISTENT_HASH             what is nearest on a ring of MD5 hashes
by config             CONFIG                      the queues it is configured with
by machine room       MACHINE_ROOM                of the queues of some rooms, about as many
machine room nearby   MACHINE_ROOM_NEARBY-…       another strategy, room by room
===================== =========================== ==============================================
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from hashlib import md5
from typing import Protocol

from roquet.errors import ConfigError
from roquet.model.message_queue import MessageQueue

__all__ = [
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByConsistentHash",
    "AllocateByMachineRoom",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
]

VIRTUAL_NODES = 10


class AllocateStrategy(Protocol):
    """A strategy to share queues.

    Example:
        strategy: AllocateStrategy = AllocateByConsistentHash()
        consumer = PushConsumer(namesrv, group="billing", handler=print, allocate=strategy)
    """

    @property
    def name(self) -> str:
        """The strategy's name, as in Java.

        Example:
            assert AllocateAveragely().name == "AVG"
        """
        ...

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one client.

        Args:
            client_id: The client.
            queues: All queues of the topic, sorted.
            client_ids: All clients of the group, sorted.

        Example:
            queues = [MessageQueue("Orders", "dev", number) for number in range(3)]
            clients = ["10.0.0.7@blue", "10.0.0.8@red"]
            assert AllocateAveragely().allocate(clients[0], queues, clients) == queues[:2]
        """
        ...


class AllocateAveragely:
    """Contiguous runs of queues, with one more for the first clients; the default.

    Example:
        >>> queues = [MessageQueue("T", "a", each) for each in range(5)]
        >>> [each.queue_id for each in AllocateAveragely().allocate("y", queues, ["x", "y"])]
        [3, 4]
    """

    name = "AVG"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one client.

        Example:
            queues = [MessageQueue("Orders", "dev", number) for number in range(4)]
            share = AllocateAveragely().allocate("red", queues, ["blue", "red"])
            assert share == queues[2:]
        """
        if client_id not in client_ids:
            return []
        index = client_ids.index(client_id)
        least, rest = divmod(len(queues), len(client_ids))
        start = index * least + min(index, rest)
        return list(queues[start : start + least + (index < rest)])


class AllocateAveragelyByCircle:
    """Queues dealt out one by one, like cards.

    Example:
        >>> queues = [MessageQueue("T", "a", each) for each in range(5)]
        >>> found = AllocateAveragelyByCircle().allocate("y", queues, ["x", "y"])
        >>> [each.queue_id for each in found]
        [1, 3]
    """

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one client.

        Example:
            queues = [MessageQueue("Orders", "dev", number) for number in range(4)]
            share = AllocateAveragelyByCircle().allocate("red", queues, ["blue", "red"])
            assert share == queues[1::2]
        """
        if client_id not in client_ids:
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class AllocateByConsistentHash:
    """Queues and clients on a ring of hashes; few queues move when a client comes or goes.

    Args:
        virtual_nodes: How many points each client has on the ring.
        hash_of: The hash function; Java's is the first four bytes of MD5.

    Raises:
        ConfigError: The number of virtual nodes is negative.

    Example:
        >>> queues = [MessageQueue("T", "a", each) for each in range(8)]
        >>> found = AllocateByConsistentHash().allocate("y", queues, ["x", "y"])
        >>> [each.queue_id for each in found]
        [2, 5, 7]
    """

    name = "CONSISTENT_HASH"

    def __init__(
        self, virtual_nodes: int = VIRTUAL_NODES, *, hash_of: Callable[[str], int] | None = None
    ) -> None:
        if virtual_nodes < 0:
            raise ConfigError(f"virtual_nodes is {virtual_nodes}", hint="It must not be negative.")
        self._virtual_nodes = virtual_nodes
        self._hash_of = hash_of or _md5_hash

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one client.

        Example:
            queues = [MessageQueue("Orders", "dev", number) for number in range(4)]
            share = AllocateByConsistentHash().allocate("red", queues, ["red"])
            assert share == queues
        """
        if client_id not in client_ids:
            return []
        owners = {
            self._hash_of(f"{each}-{index}"): each
            for each in client_ids
            for index in range(self._virtual_nodes)
        }
        ring = sorted(owners)
        if not ring:
            return []
        return [each for each in queues if owners[self._nearest(ring, each)] == client_id]

    def _nearest(self, ring: Sequence[int], queue: MessageQueue) -> int:
        text = (
            f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
            f"queueId={queue.queue_id}]"
        )
        place = bisect_left(ring, self._hash_of(text))
        return ring[place % len(ring)]


class AllocateByConfig:
    """The queues that this client is configured with, whoever else is in the group.

    Args:
        queues: The queues.

    Example:
        >>> mine = [MessageQueue("T", "a", 1)]
        >>> AllocateByConfig(mine).allocate("x", [MessageQueue("T", "a", 0)], ["x"]) == mine
        True
    """

    name = "CONFIG"

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self._queues = tuple(queues)

    def allocate(
        self,
        client_id: str,  # noqa: ARG002 - all strategies are called alike
        queues: Sequence[MessageQueue],  # noqa: ARG002
        client_ids: Sequence[str],  # noqa: ARG002
    ) -> list[MessageQueue]:
        """Return the queues of one client.

        Example:
            share = AllocateByConfig([queue]).allocate("red", [], ["blue", "red"])
            assert share == [queue]
        """
        return list(self._queues)


class AllocateByMachineRoom:
    """Only queues of brokers in some rooms; such a broker is named ``room@name``.

    Args:
        rooms: The rooms.

    Example:
        >>> queues = [MessageQueue("T", f"{room}@a", 0) for room in ("north", "south")]
        >>> AllocateByMachineRoom({"south"}).allocate("x", queues, ["x"]) == queues[1:]
        True
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one client.

        Example:
            far, near = MessageQueue("Orders", "east@a", 0), MessageQueue("Orders", "west@a", 0)
            share = AllocateByMachineRoom(["west"]).allocate("red", [far, near], ["red"])
            assert share == [near]
        """
        if client_id not in client_ids:
            return []
        index = client_ids.index(client_id)
        near = [each for each in queues if self._is_near(each.broker_name)]
        least, rest = divmod(len(near), len(client_ids))
        found = near[least * index : least * (index + 1)]
        if index < rest:
            found.append(near[least * len(client_ids) + index])
        return found

    def _is_near(self, broker_name: str) -> bool:
        # Java's split drops empty parts at the end, so "room@" has one part.
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self._rooms


class AllocateMachineRoomNearby:
    """Queues to clients of the same room; those of a room without clients to all clients.

    Args:
        strategy: How queues are shared within a room.
        room_of_queue: Where the broker of a queue is.
        room_of_client: Where a client is.

    Raises:
        ConfigError: From ``allocate``, if a queue or client has no room.

    Example:
        >>> nearby = AllocateMachineRoomNearby(
        ...     AllocateAveragely(),
        ...     room_of_queue=lambda queue: queue.broker_name.partition("-")[0],
        ...     room_of_client=lambda client_id: client_id.partition("-")[0],
        ... )
        >>> queues = [MessageQueue("T", "north-a", 0), MessageQueue("T", "south-a", 0)]
        >>> nearby.allocate("south-1", queues, ["north-1", "south-1"]) == queues[1:]
        True
    """

    def __init__(
        self,
        strategy: AllocateStrategy,
        *,
        room_of_queue: Callable[[MessageQueue], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        self._strategy = strategy
        self._room_of_queue = room_of_queue
        self._room_of_client = room_of_client

    @property
    def name(self) -> str:
        """The strategy's name, as in Java.

        Example:
            def room(name: object) -> str:
                return "west"

            strategy = AllocateMachineRoomNearby(
                AllocateAveragely(), room_of_queue=room, room_of_client=room
            )
            assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
        """
        return f"MACHINE_ROOM_NEARBY-{self._strategy.name}"

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one client.

        Example:
            def room(name: object) -> str:
                return "west"

            strategy = AllocateMachineRoomNearby(
                AllocateAveragely(), room_of_queue=room, room_of_client=room
            )
            assert strategy.allocate("red", [queue], ["red"]) == [queue]
        """
        if client_id not in client_ids:
            return []
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = _known(self._room_of_queue(queue), queue)
            queues_by_room.setdefault(room, []).append(queue)
        clients_by_room: dict[str, list[str]] = {}
        for each in client_ids:
            clients_by_room.setdefault(_known(self._room_of_client(each), each), []).append(each)
        own = _known(self._room_of_client(client_id), client_id)
        share = self._strategy.allocate
        found: list[MessageQueue] = []
        if own in queues_by_room:
            found += share(client_id, queues_by_room[own], clients_by_room[own])
        for room in sorted(queues_by_room, key=_java_order):
            if room not in clients_by_room:
                found += share(client_id, queues_by_room[room], client_ids)
        return found


def _known(room: str, what: object) -> str:
    if not room:
        raise ConfigError(
            f"The machine room of {what} is not known",
            hint="Every queue and every client must be in a room.",
        )
    return room


def _java_order(text: str) -> bytes:
    """Return a sort key: Java compares strings by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def _md5_hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
