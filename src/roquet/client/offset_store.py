"""The consume offsets of a consumer, and where they are stored.

Owns the offset table of one consumer and its two stores: the brokers, for a group that shares its
queues, and a file, for consumers that each get every message (broadcasting):

.. code-block:: text

    ~/.rocketmq_offsets/<client id>/<group>/offsets.json     as Apache RocketMQ's client keeps it

    {
    →"offsetTable":{
    →→{
    →→→"brokerName":"broker-a",
    →→→"queueId":0,
    →→→"topic":"Orders"
    →→}:17
    →}
    }

Invariants:

* An offset is that of the next message to consume.
* A frozen offset does not change until its queue is removed: messages that are still being consumed
  must not undo a reset.
* An offset that could not be stored stays in the table; the next call retries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import Protocol

from roquet.client.pull_api import PullApi
from roquet.model.fastjson import ObjectKey, dumps
from roquet.model.message_queue import MessageQueue
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.offset import ResetOffsetBody
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = ["LocalFileOffsetStore", "OffsetStore", "ReadOffset", "RemoteBrokerOffsetStore"]

log = logging.getLogger(__name__)

FOLDER = ".rocketmq_offsets"
FILE = "offsets.json"


class ReadOffset(Enum):
    """Where an offset is read from.

    Example:
        at = await store.read(queue, ReadOffset.STORE)
    """

    MEMORY = "READ_FROM_MEMORY"
    STORE = "READ_FROM_STORE"
    MEMORY_FIRST = "MEMORY_FIRST_THEN_STORE"


class OffsetStore(Protocol):
    """Stores the offsets of a consumer.

    Example:
        store: OffsetStore = RemoteBrokerOffsetStore(PullApi(client, "billing"))
        await store.load()
        store.update(queue, 1, increase_only=True)
        await store.persist([queue])
    """

    async def load(self) -> None:
        """Load the stored offsets, if the store reads them all at once.

        Example:
            await store.load()
        """
        ...

    def update(self, queue: MessageQueue, queue_offset: int, *, increase_only: bool) -> None:
        """Record an offset; the next :meth:`persist` stores it.

        Example:
            store.update(queue, 17, increase_only=True)
            assert store.offsets() == {queue: 17}
        """
        ...

    def update_and_freeze(self, queue: MessageQueue, queue_offset: int) -> None:
        """Record an offset that later updates do not change.

        Example:
            store.update_and_freeze(queue, 0)
            store.update(queue, 17, increase_only=False)
            assert store.offsets() == {queue: 0}
        """
        ...

    async def read(
        self, queue: MessageQueue, source: ReadOffset = ReadOffset.MEMORY_FIRST
    ) -> int | None:
        """Return the offset of a queue; ``None`` if there is none.

        Raises:
            RoquetError: The store cannot be read, so it is unknown whether there is an offset.

        Example:
            at = await store.read(queue)
        """
        ...

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Store the offsets of these queues.

        Raises:
            RoquetError: Some could not be stored; the others were.

        Example:
            store.update(queue, 1, increase_only=False)
            await store.persist([queue])
        """
        ...

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue in memory, but not in the store.

        Example:
            store.remove(queue)
            assert store.offsets() == {}
        """
        ...

    def offsets(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return the offsets in memory, of one topic or all.

        Example:
            for queue, queue_offset in store.offsets("Orders").items():
                print(queue, queue_offset)
        """
        ...


class _Table:
    """Offsets by queue."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def update(
        self, queue: MessageQueue, queue_offset: int, *, increase_only: bool = False
    ) -> None:
        """Record an offset; the next ``persist`` stores it.

        Args:
            queue: The queue.
            queue_offset: The next message to consume.
            increase_only: Whether to ignore an offset smaller than the current one.

        Example:
            store.update(queue, 17)
            store.update(queue, 16, increase_only=True)
            assert store.offsets() == {queue: 17}
        """
        known = self._offsets.get(queue)
        if queue in self._frozen or (increase_only and known is not None and known > queue_offset):
            return
        self._offsets[queue] = queue_offset

    def update_and_freeze(self, queue: MessageQueue, queue_offset: int) -> None:
        """Record an offset that later updates do not change until the queue is removed.

        Example:
            store.update_and_freeze(queue, 0)
            store.update(queue, 17)
            assert store.offsets() == {queue: 0}
        """
        self._offsets[queue] = queue_offset
        self._frozen.add(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue in memory, but not in the store.

        Example:
            store.update(queue, 17)
            store.remove(queue)
            assert store.offsets() == {}
        """
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    def offsets(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return the offsets in memory, of one topic or all.

        Example:
            store.update(queue, 17)
            assert store.offsets("Orders") == {queue: 17}
        """
        return {
            queue: queue_offset
            for queue, queue_offset in self._offsets.items()
            if topic is None or queue.topic == topic
        }


class RemoteBrokerOffsetStore(_Table):
    """Offsets that the brokers of the queues keep, for all members of a group.

    Args:
        api: Sends the requests to brokers.

    Example:
        store = RemoteBrokerOffsetStore(PullApi(client, "billing"))
        store.update(queue, 1)
        await store.persist([queue])
    """

    def __init__(self, api: PullApi) -> None:
        super().__init__()
        self._api = api
        self._locks: dict[str, asyncio.Lock] = {}

    async def load(self) -> None:
        """Do nothing: each offset is queried when needed.

        Example:
            await store.load()
        """

    async def read(
        self, queue: MessageQueue, source: ReadOffset = ReadOffset.MEMORY_FIRST
    ) -> int | None:
        """Return the offset of a queue; ``None`` if there is none.

        Raises:
            RoquetError: The broker cannot be queried.

        Example:
            at = await store.read(queue, ReadOffset.STORE)
        """
        known = self._offsets.get(queue)
        if source is ReadOffset.MEMORY or (known is not None and source is not ReadOffset.STORE):
            return known
        found = await self._api.query_offset(queue)
        if found is not None:
            self.update(queue, found)
        return found

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Send the offsets to the brokers of these queues, and wait for the responses.

        Raises:
            RoquetError: Some could not be stored; the others were.

        Example:
            store.update(queue, 1)
            await store.persist([queue])
        """
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        found = await asyncio.gather(
            *(self._persist_at_broker(name, each) for name, each in by_broker.items())
        )
        problems = [each for part in found for each in part]
        for problem in problems[1:]:
            log.warning("An offset was not stored: %s", problem)
        if problems:
            raise problems[0]

    async def _persist_at_broker(
        self, broker_name: str, queues: Collection[MessageQueue]
    ) -> list[BaseException]:
        # Of two concurrent requests, a broker may apply the older one last.
        async with self._locks.setdefault(broker_name, asyncio.Lock()):
            noted = {queue: at for queue in queues if (at := self._offsets.get(queue)) is not None}
            done = await asyncio.gather(
                *(self._api.update_offset(queue, at) for queue, at in noted.items()),
                return_exceptions=True,
            )
        return [each for each in done if each is not None]


class LocalFileOffsetStore(_Table):
    """Offsets in a file of this machine, for broadcasting.

    The folder has the client id in its name, so only a client with an instance name of its own
    finds its offsets again.

    Args:
        client_id: The client.
        group: Its group.
        folder: The folder for the files of all clients; by default Java's, in the home folder.
        files: The file system.

    Raises:
        StoreError: The client id or the group cannot be the name of a folder.

    Example:
        >>> import tempfile
        >>> async def main() -> int | None:
        ...     queue = MessageQueue("Orders", "broker-a", 0)
        ...     with tempfile.TemporaryDirectory() as folder:
        ...         store = LocalFileOffsetStore("10.0.0.7@blue", "billing", folder=Path(folder))
        ...         store.update(queue, 17)
        ...         await store.persist([queue])
        ...         again = LocalFileOffsetStore("10.0.0.7@blue", "billing", folder=Path(folder))
        ...         await again.load()
        ...         return await again.read(queue)
        >>> asyncio.run(main())
        17
    """

    def __init__(
        self,
        client_id: str,
        group: str,
        *,
        folder: Path | None = None,
        files: Files | None = None,
    ) -> None:
        super().__init__()
        files = files or Files()
        root = folder if folder is not None else Path.home() / FOLDER
        self._file = ConfigFile(
            files.inside(root, client_id, group, FILE), files, decode=_decode_offsets
        )
        self._lock = asyncio.Lock()

    @property
    def path(self) -> Path:
        """The file.

        Example:
            print(LocalFileOffsetStore("10.0.0.7@blue", "billing").path)
        """
        return self._file.path

    async def load(self) -> None:
        """Read the file.

        Raises:
            ConfigError: The file exists, but neither it nor its backup can be used.
            StoreError: The file system reported an error.

        Example:
            local = LocalFileOffsetStore("10.0.0.7@blue", "billing", folder=folder)
            await local.load()
        """
        for queue, queue_offset in (await self._stored()).items():
            self.update(queue, queue_offset)

    async def read(
        self, queue: MessageQueue, source: ReadOffset = ReadOffset.MEMORY_FIRST
    ) -> int | None:
        """Return the offset of a queue; ``None`` if there is none.

        Raises:
            RoquetError: The file cannot be read.

        Example:
            local = LocalFileOffsetStore("10.0.0.7@blue", "billing", folder=folder)
            assert await local.read(queue, ReadOffset.MEMORY) is None
        """
        known = self._offsets.get(queue)
        if source is ReadOffset.MEMORY or (known is not None and source is not ReadOffset.STORE):
            return known
        found = (await self._stored()).get(queue)
        if found is not None:
            self.update(queue, found)
        return found

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Write these offsets into the file; those of other queues stay in it.

        Raises:
            RoquetError: The file cannot be written, or its content cannot be read.

        Example:
            local = LocalFileOffsetStore("10.0.0.7@blue", "billing", folder=folder)
            local.update(queue, 17)
            await local.persist([queue])
        """
        wanted = frozenset(queues)
        changed = {queue: at for queue, at in self._offsets.items() if queue in wanted}
        if changed:
            async with self._lock:
                await asyncio.to_thread(self._merge, changed)

    async def _stored(self) -> dict[MessageQueue, int]:
        async with self._lock:
            return await asyncio.to_thread(self._read_file)

    def _read_file(self) -> dict[MessageQueue, int]:
        found = self._file.load()
        if found is None:
            return {}
        if found.problem is not None:
            log.warning("%s (%s)", found.problem.message, found.problem.detail)
        return found.value

    def _merge(self, changed: dict[MessageQueue, int]) -> None:
        # Read again each time, as Java does: another process may have the same client id.
        table = self._read_file() | changed
        keyed = {
            ObjectKey.of(
                {"brokerName": each.broker_name, "queueId": each.queue_id, "topic": each.topic}
            ): table[each]
            for each in sorted(table)
        }
        self._file.save(dumps({"offsetTable": keyed}, pretty=True))


def _decode_offsets(text: str) -> dict[MessageQueue, int]:
    return decode_body(ResetOffsetBody, text.encode()).offset_table
