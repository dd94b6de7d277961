"""The queue mappings of static topics, kept in ``topicQueueMapping.json``.

Owns the table of mappings and the rules by which a new one replaces the known one: its epoch is not
smaller, and known items do not change. :mod:`roquet.model.topic_queue_mapping` interprets mappings.

Invariants:

* A change is in the file before it takes effect and is acknowledged, or nothing changed.
* A mapping is replaced, never modified in place.
* A topic without an entry is an ordinary one; checking costs one lookup.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.config_manager import (
    EntryTextCache,
    config_path,
    decode_table,
    pretty,
)
from roquet.broker.manager.staged import StagedManager
from roquet.errors import ConfigError
from roquet.model.data_version import DataVersion
from roquet.model.fastjson import dumps
from roquet.model.topic_queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    check_items,
    check_successors,
)
from roquet.remoting.bodies.topic import TopicQueueMappingSerializeWrapper
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = ["MappedQueue", "TopicQueueMappingManager"]

_FILE_NAME = "topicQueueMapping.json"


class QueueHeader(Protocol):
    """The header of a request about a queue."""

    topic: str
    queue_id: int
    logical: bool | None


class MappedQueue(NamedTuple):
    """The queue of a static topic in one request; upstream's TopicQueueMappingContext.

    Attributes:
        detail: The mapping of its topic.
        queue_id: The logical queue id.
        items: The physical queues that hold it, as far as this broker knows.
    """

    detail: TopicQueueMappingDetail
    queue_id: int
    items: list[LogicQueueMappingItem]

    @property
    def leader(self) -> LogicQueueMappingItem | None:
        """The item that receives messages, if this broker has it."""
        if self.items and self.items[-1].broker_name == self.detail.broker_name:
            return self.items[-1]
        return None

    def is_local(self, item: LogicQueueMappingItem) -> bool:
        """Whether this broker has an item."""
        return item.broker_name == self.detail.broker_name


def _decode(text: str) -> TopicQueueMappingSerializeWrapper:
    return decode_table(TopicQueueMappingSerializeWrapper, text)


def _member(topic: str, detail: TopicQueueMappingDetail) -> bytes:
    plain = dict(sorted(msgspec.to_builtins(detail).items()))
    return f"{dumps(topic)}:{pretty(plain, level=2)}".encode()


class TopicQueueMappingManager(StagedManager[TopicQueueMappingSerializeWrapper]):
    """The mappings of static topics.

    Args:
        broker_name: The broker of the mappings.
        file: Their file; see :meth:`at`.
        clock: The time.

    Attributes:
        table: The mappings by topic. Entries are replaced, never modified; read only.
        changed: Called after every change.
    """

    def __init__(
        self,
        broker_name: str,
        file: ConfigFile[TopicQueueMappingSerializeWrapper],
        clock: Clock,
    ) -> None:
        super().__init__(file, clock)
        self.broker_name = broker_name
        self.table: dict[str, TopicQueueMappingDetail] = {}
        self._staged_mappings = self._stages(self.table)
        self._texts = EntryTextCache[TopicQueueMappingDetail](2, _member)
        # Brokers without static topics have no file.
        self._written_edits = self._edits

    @classmethod
    def at(cls, config: BrokerConfig, files: Files, clock: Clock) -> TopicQueueMappingManager:
        """Return the mappings in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, _FILE_NAME), files, decode=_decode)
        return cls(config.broker_name, file, clock)

    def queue_of(self, header: QueueHeader, *, any_queue: bool = False) -> MappedQueue | None:
        """Return the queue of a request if its topic is static, else ``None``.

        A request from another broker is marked as one for a physical queue, and treated as such.

        Args:
            header: The header of the request.
            any_queue: Whether a negative id means any queue that this broker leads.
        """
        detail = self.table.get(header.topic)
        if detail is None or header.logical is False:
            return None
        queue_id = header.queue_id
        if queue_id < 0 and any_queue:
            queue_id = next(filter(detail.is_leader, detail.hosted_queues), queue_id)
        return MappedQueue(detail, queue_id, detail.hosted_queues.get(queue_id, []))

    def infos(self, topics: Container[str]) -> dict[str, TopicQueueMappingInfo]:
        """Return the mapping infos of the static topics among these, for name servers."""
        return {topic: detail.to_info() for topic, detail in self.of_topics(topics).items()}

    def of_topics(self, topics: Container[str]) -> dict[str, TopicQueueMappingDetail]:
        """Return the mappings of the static topics among these."""
        return {topic: detail for topic, detail in self.table.items() if topic in topics}

    def accepted(
        self, new: TopicQueueMappingDetail, *, force: bool = False
    ) -> TopicQueueMappingDetail:
        """Return the mapping that an update would result in; changes nothing.

        Args:
            new: The mapping.
            force: Whether to accept it whatever the known one is.

        Raises:
            ConfigError: It cannot replace the known one.
        """
        try:
            return self._accepted(new, force=force)
        except ValueError as error:
            raise ConfigError(str(error), code="mapping_refused") from error

    def _accepted(self, new: TopicQueueMappingDetail, *, force: bool) -> TopicQueueMappingDetail:
        if new.broker_name != self.broker_name:
            raise ValueError(f"The mapping is of broker {new.broker_name}, not {self.broker_name}")
        for items in new.hosted_queues.values():
            check_items(items)
        old = self._staged_mappings.get(new.topic or "")
        if old is None:
            return new
        if not force:
            if new.epoch < old.epoch:
                raise ValueError(f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
            if new.scope != old.scope:
                raise ValueError(
                    f"Can't accept data with unmatched scope {new.scope} != {old.scope}"
                )
            self._check_known(old, new)
        hosted = old.hosted_queues | new.hosted_queues
        return msgspec.structs.replace(new, hosted_queues=dict(sorted(hosted.items())))

    @staticmethod
    def _check_known(old: TopicQueueMappingDetail, new: TopicQueueMappingDetail) -> None:
        is_same_epoch = new.epoch == old.epoch
        for queue_id, items in old.hosted_queues.items():
            successors = new.hosted_queues.get(queue_id)
            if successors is not None:
                check_successors(items, successors, is_same_epoch=is_same_epoch)
            elif is_same_epoch:
                raise ValueError("Cannot accept equal epoch with null data")

    def stage(self, new: TopicQueueMappingDetail, *, force: bool = False) -> None:
        """Create or replace the mapping of a topic, once committed; queues not in it stay.

        Raises:
            ConfigError: It cannot replace the known one.
        """
        accepted = self.accepted(new, force=force)
        assert accepted.topic, "a mapping names its topic"
        self._staged_mappings.stage(self._new_change(), accepted.topic, accepted)

    def stage_queues(
        self,
        detail: TopicQueueMappingDetail,
        queues: Mapping[int, list[LogicQueueMappingItem] | None],
    ) -> bool:
        """Replace the items of some queues of a mapping, once committed.

        Args:
            detail: The mapping.
            queues: The items by queue id; ``None`` removes a queue.

        Returns:
            Whether the mapping is still the current one of its topic; if not, nothing changes.
        """
        assert detail.topic, "a mapping names its topic"
        if self._staged_mappings.get(detail.topic) is not detail:
            return False
        hosted = {
            queue_id: items
            for queue_id, items in {**detail.hosted_queues, **queues}.items()
            if items is not None
        }
        new = msgspec.structs.replace(detail, hosted_queues=hosted)
        self._staged_mappings.stage(self._new_change(), detail.topic, new)
        return True

    def stage_delete(self, topics: Iterable[str]) -> None:
        """Turn static topics into ordinary ones, once committed."""
        for topic in topics:
            if self._staged_mappings.get(topic) is not None:
                self._staged_mappings.stage(self._new_change(), topic, None)

    def adopt(self, table: Mapping[str, TopicQueueMappingDetail], version: DataVersion) -> None:
        """Become a copy of a master's table; mappings of another broker name are ignored."""
        self.table.clear()
        self.table.update(
            (topic, msgspec.structs.replace(detail, topic=topic))
            for topic, detail in table.items()
            if detail.broker_name == self.broker_name
        )
        self._adopt_version(version)
        self.tell_changed()

    def _take(self, loaded: TopicQueueMappingSerializeWrapper) -> bool:
        self.data_version = loaded.data_version
        self.table.update(loaded.topic_queue_mapping_info_map or {})
        return False

    def _snapshot(self) -> TopicQueueMappingSerializeWrapper:
        return TopicQueueMappingSerializeWrapper(
            data_version=self._pictured_version(),
            topic_queue_mapping_info_map=self._staged_mappings.snapshot(),
        )

    def _pieces(self, snapshot: TopicQueueMappingSerializeWrapper) -> Iterator[bytes]:
        version = pretty(msgspec.to_builtins(snapshot.data_version), level=1)
        yield f'{{\n\t"dataVersion":{version},\n\t"topicQueueMappingInfoMap":'.encode()
        yield from self._texts.pieces(snapshot.topic_queue_mapping_info_map or {})
        yield b"\n}"
