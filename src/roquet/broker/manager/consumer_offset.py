"""The consume offsets of groups by queue, kept in ``consumerOffset.json``.

Owns three tables by ``topic@group`` and queue id:

.. code-block:: text

    table    the committed offset, where the group continues       in the file
    reset    where an administrator reset the group to, used once  in memory
    pull     the offset after the last pulled message              in memory

Invariants:

* Committed offsets are written every few seconds, not at each commit, as upstream does: after a
  crash a group may get the messages of the last seconds again, but never misses any.
* An offset in ``reset`` takes precedence over ``table`` until it is queried and erased.
* All tables together hold at most :data:`OFFSETS_MAX` offsets, so that made-up queue ids cannot
  exhaust memory; the caller checks that topic and group exist.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.config_manager import config_path, decode_table
from roquet.broker.manager.staged import StagedManager
from roquet.model.data_version import DataVersion
from roquet.model.fastjson import WritableJson, dumps
from roquet.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = ["OFFSETS_MAX", "UNKNOWN_OFFSET", "ConsumerOffsetManager", "offset_key"]

log = logging.getLogger(__name__)

UNKNOWN_OFFSET = -1

OFFSETS_MAX = 2_000_000
"""Commits for further queues are dropped."""

KEYS_A_STEP = 200
"""Keys of a master's table that are copied before other work may run."""

_FILE_NAME = "consumerOffset.json"
_SEPARATOR = "@"

OffsetTable = dict[str, dict[int, int]]


def offset_key(topic: str, group: str) -> str:
    """Return the table key of a group's offsets for a topic."""
    return f"{topic}{_SEPARATOR}{group}"


def _decode(text: str) -> ConsumerOffsetSerializeWrapper:
    return decode_table(ConsumerOffsetSerializeWrapper, text)


class ConsumerOffsetManager(StagedManager[ConsumerOffsetSerializeWrapper]):
    """The offsets.

    Args:
        config: The broker's settings.
        file: Their file; see :meth:`at`.
        clock: The time.

    Attributes:
        table: Committed offsets by ``topic@group`` and queue id; read only, because
            :meth:`persist` would not know of a change.
        resets: Offsets that an administrator set and the group has not fetched yet; read only.
        pulled: Offsets after the last pull. An offset that is there may be changed directly; a
            new one has to be counted, by :meth:`commit_pull_at`.
        reset_assigned: Called with topic, queue id and group when an offset is reset.
    """

    def __init__(
        self, config: BrokerConfig, file: ConfigFile[ConsumerOffsetSerializeWrapper], clock: Clock
    ) -> None:
        super().__init__(file, clock)
        self._config = config
        self.table: OffsetTable = {}
        self.reset_assigned: list[Callable[[str, int, str], None]] = []
        self.resets: OffsetTable = {}
        self.pulled: OffsetTable = {}
        self._commits = 0
        self._count = 0

    @classmethod
    def at(cls, config: BrokerConfig, files: Files, clock: Clock) -> ConsumerOffsetManager:
        """Return the offsets in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, _FILE_NAME), files, decode=_decode)
        return cls(config, file, clock)

    # ---------------------------------------------------------------------------- committed

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Commit an offset; a smaller one is allowed, and logged."""
        key = offset_key(topic, group)
        old = self._put(self.table, key, queue_id, queue_offset)
        if queue_offset < old and (more := self._log_limiter.allow("back")) is not None:
            log.warning(
                "%s queue %d went back to %d from %d%s", key, queue_id, queue_offset, old, more
            )
        self._edits += 1
        self._commits += 1
        if self._commits % self._config.consumer_offset_update_version_step == 0:
            self._bump()

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return where a group continues in a queue, considering resets; -1 if unknown."""
        key = offset_key(topic, group)
        if self.resets and self._config.use_server_side_reset_offset:
            reset = self.resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        queues = self.table.get(key)
        return UNKNOWN_OFFSET if queues is None else queues.get(queue_id, UNKNOWN_OFFSET)

    def offsets_of(self, group: str, topic: str) -> dict[int, int] | None:
        """Return a group's committed offsets for a topic by queue id, or None if there are none."""
        queues = self.table.get(offset_key(topic, group))
        return None if queues is None else dict(queues)

    # ----------------------------------------------------------------------------- pulled

    def commit_pull(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Record the offset after a pull."""
        self.commit_pull_at(offset_key(topic, group), queue_id, queue_offset)

    def commit_pull_at(self, key: str, queue_id: int, queue_offset: int) -> None:
        """As :meth:`commit_pull`, with the :func:`offset_key` of topic and group."""
        self._put(self.pulled, key, queue_id, queue_offset)

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset after the last pull, else where the group continues; -1 if unknown."""
        pulled = self.pulled.get(offset_key(topic, group), {}).get(queue_id)
        return self.query(group, topic, queue_id) if pulled is None else pulled

    # ------------------------------------------------------------------------------ reset

    def assign_reset_offset(self, topic: str, group: str, queue_id: int, queue_offset: int) -> None:
        """Reset a group's offset, effective with its next pull or when it comes back."""
        if not topic or not group or queue_id < 0 or queue_offset < 0:
            log.warning(
                "No reset of group %r in %r queue %d to %d", group, topic, queue_id, queue_offset
            )
            return
        key = offset_key(topic, group)
        self._put(self.resets, key, queue_id, queue_offset)
        self._put(self.table, key, queue_id, queue_offset)
        self._edits += 1
        for listener in self.reset_assigned:
            listener(topic, queue_id, group)

    def has_offset_reset(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a group's offset was reset and the group has not fetched it yet."""
        return bool(self.resets) and queue_id in self.resets.get(offset_key(topic, group), {})

    def query_then_erase_reset_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the reset offset of a group and erase it, as the group now knows it."""
        if not self.resets:
            return None
        key = offset_key(topic, group)
        queues = self.resets.get(key)
        if queues is None:
            return None
        queue_offset = queues.pop(queue_id, None)
        if queue_offset is not None:
            self._count -= 1
        if not queues:
            del self.resets[key]
        return queue_offset

    # ----------------------------------------------------------------- by group and by topic

    def topics_of_group(self, group: str) -> set[str]:
        """Return the topics for which a group committed offsets."""
        return {topic for topic, other in self._pairs() if other == group}

    def groups_of_topic(self, topic: str) -> set[str]:
        """Return the groups that committed offsets for a topic."""
        return {group for other, group in self._pairs() if other == topic}

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        self._remove(lambda parts: len(parts) > 1 and parts[1] == group)

    def remove_topic(self, topic: str) -> None:
        """Forget all offsets of a topic."""
        self._remove(lambda parts: parts[0] == topic)

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Copy a group's offsets for a topic to another group, if there are any."""
        queues = self.table.get(offset_key(topic, source_group))
        if queues is not None:
            target = offset_key(topic, target_group)
            self._count -= len(self.table.pop(target, ()))
            for queue_id, queue_offset in queues.items():
                self._put(self.table, target, queue_id, queue_offset)
            self._edits += 1

    def adopt_in_steps(
        self, table: Mapping[str, Mapping[int, int]], version: DataVersion | None
    ) -> Iterator[None]:
        """Take over a master's offsets; other work may run at each ``yield``.

        Keys that the master does not have stay, as in upstream.
        """
        for number, (key, queues) in enumerate(table.items(), 1):
            known = self.table.get(key)
            if known is None or known != queues:
                for queue_id in [each for each in known or () if each not in queues]:
                    del self.table[key][queue_id]
                    self._count -= 1
                for queue_id, queue_offset in queues.items():
                    self._put(self.table, key, queue_id, queue_offset)
            if number % KEYS_A_STEP == 0:
                yield
        self._adopt_version(version)

    def _pairs(self) -> list[tuple[str, str]]:
        # Keys of three parts hold the offsets of single broadcast clients.
        keys = (key.split(_SEPARATOR) for key in self.table)
        return [(parts[0], parts[1]) for parts in keys if len(parts) == 2]

    def _remove(self, matches: Callable[[list[str]], bool]) -> None:
        for table in (self.table, self.resets, self.pulled):
            for key in [key for key in table if matches(key.split(_SEPARATOR))]:
                self._count -= len(table.pop(key))
                self._edits += 1

    def _put(self, table: OffsetTable, key: str, queue_id: int, queue_offset: int) -> int:
        """Set an offset; return the previous one, or -1."""
        queues = table.get(key)
        old = None if queues is None else queues.get(queue_id)
        if queues is not None and old is not None:
            queues[queue_id] = queue_offset
            return old
        if self._count < OFFSETS_MAX:
            self._count += 1
            table.setdefault(key, {})[queue_id] = queue_offset
        elif (more := self._log_limiter.allow("full")) is not None:
            log.warning("%s queue %d was dropped: too many offsets%s", key, queue_id, more)
        return UNKNOWN_OFFSET

    # ------------------------------------------------------------------------------- file

    def _take(self, loaded: ConsumerOffsetSerializeWrapper) -> bool:
        self.table.clear()
        self.table.update(loaded.offset_table)
        self._count = sum(map(len, self.table.values()))
        if loaded.data_version is not None:
            self.data_version = loaded.data_version
        return False

    def _snapshot(self) -> ConsumerOffsetSerializeWrapper:
        return ConsumerOffsetSerializeWrapper(
            data_version=msgspec.structs.replace(self.data_version),
            offset_table={key: dict(queues) for key, queues in self.table.items()},
        )

    def _pieces(self, snapshot: ConsumerOffsetSerializeWrapper) -> Iterable[bytes]:
        topics_by_group: dict[str, list[WritableJson]] = {}
        for key in snapshot.offset_table:
            parts = key.split(_SEPARATOR)
            if len(parts) == 2:
                topics_by_group.setdefault(parts[1], []).append(parts[0])
        file: dict[str, WritableJson] = {
            "dataVersion": msgspec.to_builtins(snapshot.data_version),
            "groupTopicMap": topics_by_group,
            "offsetTable": snapshot.offset_table,
        }
        return (dumps(file, pretty=True).encode(),)
