"""The message store interface, split into parts.

Upstream's MessageStore. Owns the names and types that a broker, a plug-in and a test may rely on;
:class:`~roquet.store.default_message_store.DefaultMessageStore` keeps messages on disk,
:class:`~roquet.store.plugin.PluginMessageStore` wraps another store. Code that needs only one part
declares that part.

Numbers that do not exist are -1, and the end of a queue that does not exist is 0, as in RocketMQ's
responses.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Protocol

from roquet.model.host import Host
from roquet.model.message import BatchMessage, BrokerMessage, StoredMessage
from roquet.runtime.clock import Clock
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import ArrivingListener, CommitLogDispatcher
from roquet.store.forward import NotForwarded
from roquet.store.reader import PULL_BYTES_MAX, MessageFilter
from roquet.store.results import (
    BoundaryType,
    BurstResult,
    Bytes,
    GetMessageResult,
    PutMessageResult,
    QueryMessageResult,
    RecoveryReport,
)
from roquet.store.running_flags import RunningFlags
from roquet.store.stats import StoreStatsService

PutDone = Callable[[PutMessageResult], None]
PutHook = Callable[[BrokerMessage | BatchMessage], PutMessageResult | None]


class Lifecycle(Protocol):
    """From an unopened directory to a closed one."""

    def load(self) -> RecoveryReport:
        """Lock the store, open its files and recover them."""
        raise NotForwarded

    def start(self) -> None:
        """Start accepting puts."""
        raise NotForwarded

    def shutdown(self) -> None:
        """Put everything on disk and release the store; safe to call twice."""
        raise NotForwarded

    def destroy(self) -> None:
        """Delete every file of a store that is shut down."""
        raise NotForwarded

    @property
    def is_shut_down(self) -> bool:
        """Whether :meth:`shutdown` was called."""
        raise NotForwarded


class MessagePut(Protocol):
    """Appending."""

    def submit(self, message: BrokerMessage | BatchMessage, done: PutDone | None = None) -> None:
        """Append as part of a burst; ``done`` gets the result once it is known."""
        raise NotForwarded

    def finish_burst(self) -> None:
        """Dispatch what was submitted, then deliver the results."""
        raise NotForwarded

    def put_burst(self, messages: Sequence[BrokerMessage]) -> BurstResult:
        """Append and dispatch many messages at once without waiting for the disk."""
        raise NotForwarded

    def put_message(self, message: BrokerMessage | BatchMessage) -> PutMessageResult:
        """Append one message or batch and wait for the result."""
        raise NotForwarded


class MessageGet(Protocol):
    """Reading a queue."""

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        *,
        max_total_bytes: int = PULL_BYTES_MAX,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult:
        """Records of a queue from an offset on."""
        raise NotForwarded

    def get_message_in_memory(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        *,
        max_total_bytes: int = PULL_BYTES_MAX,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult | None:
        """Like :meth:`get_message`, or ``None`` if that may wait for the disk."""
        raise NotForwarded

    def will_block(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether reading there may wait for the disk, so that a thread should do it."""
        raise NotForwarded


class QueueOffsets(Protocol):
    """Numbers of a queue."""

    def max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """The offset after the last message; not ``committed``: the offset of the next append."""
        raise NotForwarded

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The offset of the oldest message still stored, -1 if there is no queue."""
        raise NotForwarded

    def physical_offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """The physical offset of the record at a queue offset, -1 if there is none."""
        raise NotForwarded

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """The first message stored at or after a time, or (upper) the last up to it."""
        raise NotForwarded


class TimeLookup(Protocol):
    """When messages were stored."""

    @property
    def clock(self) -> Clock:
        """The time."""
        raise NotForwarded

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        raise NotForwarded

    def earliest_message_time_ms(self) -> int:
        """Store time of the oldest record of the log, -1 if there is none."""
        raise NotForwarded

    def earliest_message_time_in_queue_ms(self, topic: str, queue_id: int) -> int:
        """Store time of the oldest message of a queue, -1 if there is none."""
        raise NotForwarded

    def message_store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a message, -1 if there is no such message."""
        raise NotForwarded


class MessageLookup(Protocol):
    """Single messages, by physical offset or by key."""

    def select_one(self, physical_offset: int, size_bytes: int | None = None) -> Bytes | None:
        """The record at an offset of the log, ``None`` if there is no valid one."""
        raise NotForwarded

    def look_message(
        self, physical_offset: int, size_bytes: int | None = None
    ) -> StoredMessage | None:
        """The message at an offset of the log."""
        raise NotForwarded

    def query_message(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> QueryMessageResult:
        """Records of a topic with a key in a time range."""
        raise NotForwarded

    def message_ids(
        self, topic: str, queue_id: int, begin_offset: int, end_offset: int, store_host: Host
    ) -> dict[str, int]:
        """Offset message ids of a range of a queue, each with its queue offset."""
        raise NotForwarded


class Replication(Protocol):
    """The log as bytes, for master and slave."""

    @property
    def max_physical_offset(self) -> int:
        """End of the readable log."""
        raise NotForwarded

    @property
    def min_physical_offset(self) -> int:
        """The oldest byte of the log."""
        raise NotForwarded

    @property
    def confirm_offset(self) -> int:
        """End of what readers may see."""
        raise NotForwarded

    def set_confirm_offset(self, physical_offset: int | None) -> None:
        """Hide everything from an offset on from readers; ``None`` lifts that."""
        raise NotForwarded

    def commit_log_data(self, physical_offset: int) -> memoryview | None:
        """The log from an offset to at most the end of its segment."""
        raise NotForwarded

    def bulk_commit_log_data(self, physical_offset: int, size_bytes: int) -> list[memoryview]:
        """The log from an offset on, across as many segments as necessary."""
        raise NotForwarded

    def append_to_commit_log(self, physical_offset: int, data: bytes | memoryview) -> bool:
        """Append bytes of a master's log; false if that is not where the log ends."""
        raise NotForwarded

    def is_offset_aligned(self, physical_offset: int) -> bool:
        """Whether a record, or the end of a segment or of the log, begins at an offset."""
        raise NotForwarded

    def truncate_to(self, physical_offset: int) -> None:
        """Erase the log, and what is derived from it, from an offset on."""
        raise NotForwarded

    def reset_write_offset(self, physical_offset: int) -> None:
        """Make the next append go to an offset: start an empty log there, or truncate."""
        raise NotForwarded

    def update_ha_master_address(self, address: str) -> None:
        """Set the master that a slave replicates from."""
        raise NotForwarded

    @property
    def ha_master_address(self) -> str:
        """The master that a slave replicates from, empty if there is none."""
        raise NotForwarded

    def slave_behind_bytes(self) -> int:
        """How much of the log the most advanced slave still lacks."""
        raise NotForwarded


class Maintenance(Protocol):
    """Operations for administrators."""

    def flush(self) -> int:
        """Put everything appended so far on disk; returns how far that is."""
        raise NotForwarded

    def delete_files_manually(self, *, archived_offset: int | None = None) -> None:
        """Delete segments that are old enough, whatever the hour.

        With ``archived_offset``, delete those that end at or before this physical offset: they
        are archived elsewhere, so ``archivedFileReservedTime`` applies to them.
        """
        raise NotForwarded

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Delete the queues of topics; returns how many topics had any."""
        raise NotForwarded

    def clean_unused_topics(self, retained: Container[str]) -> Iterator[int]:
        """Delete the queues of topics that are neither retained nor the broker's own, in steps.

        Each step yields how many topics it deleted. Between steps the store may be used; a topic
        that is retained by then stays.
        """
        raise NotForwarded

    def clean_expired_consume_queues(self) -> Iterator[int]:
        """Delete queues that have no message left in the log, in steps.

        Each step yields how many queues it deleted. Between steps the store may be used; a queue
        that gets a message stays.
        """
        raise NotForwarded


class Health(Protocol):
    """How far behind and how busy a store is."""

    @property
    def flags(self) -> RunningFlags:
        """What it may do at the moment."""
        raise NotForwarded

    @property
    def flushed_offset(self) -> int:
        """End of what is on disk."""
        raise NotForwarded

    def remaining_to_flush_bytes(self) -> int:
        """How much of the readable log is not on disk."""
        raise NotForwarded

    def remaining_to_commit_bytes(self) -> int:
        """How much of the log is only in transient buffers."""
        raise NotForwarded

    def remaining_transient_buffers(self) -> int:
        """How many transient buffers are free; the largest int when none are used."""
        raise NotForwarded

    def is_transient_store_pool_deficient(self) -> bool:
        """Whether all transient buffers are in use."""
        raise NotForwarded

    def dispatch_behind_bytes(self) -> int:
        """How much of the log is not dispatched."""
        raise NotForwarded

    def lock_time_ms(self) -> int:
        """How long the current append has taken, 0 if there is none."""
        raise NotForwarded

    def is_os_page_cache_busy(self) -> bool:
        """Whether appends take too long."""
        raise NotForwarded

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int, batch: int = 1) -> bool:
        """Whether the pages of messages are in memory now."""
        raise NotForwarded

    def runtime_info(self) -> dict[str, str]:
        """Counters and marks under upstream's names."""
        raise NotForwarded


class ExtensionPoints(Protocol):
    """Extension points: hooks, dispatchers and listeners."""

    @property
    def config(self) -> MessageStoreConfig:
        """The settings."""
        raise NotForwarded

    @property
    def stats(self) -> StoreStatsService:
        """The counters."""
        raise NotForwarded

    @property
    def queues(self) -> ConsumeQueueStore:
        """All queues."""
        raise NotForwarded

    def find_consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that exists."""
        raise NotForwarded

    @property
    def put_hooks(self) -> list[PutHook]:
        """Called before each put; the first result that is not ``None`` refuses it."""
        raise NotForwarded

    @property
    def dispatchers(self) -> list[CommitLogDispatcher]:
        """Called with every record, in the order of the log."""
        raise NotForwarded

    def add_arriving_listener(self, listener: ArrivingListener) -> None:
        """Call ``listener`` with every queue that grew, once per burst."""
        raise NotForwarded


class MessageStore(
    Lifecycle,
    MessagePut,
    MessageGet,
    QueueOffsets,
    TimeLookup,
    MessageLookup,
    Replication,
    Maintenance,
    Health,
    ExtensionPoints,
    Protocol,
):
    """The whole interface."""
