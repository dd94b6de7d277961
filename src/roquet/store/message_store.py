"""What a message store can do, cut into parts.

Upstream's MessageStore. Owns the names and types that a broker, a plug-in and a test may rely on;
:class:`~roquet.store.default_message_store.DefaultMessageStore` keeps messages on disk,
:class:`~roquet.store.plugin.PluginMessageStore` stands before another store. Code that needs one
part asks for that part.

Numbers that do not exist are -1, and 0 for the end of a queue that does not exist: these are the
numbers that RocketMQ's answers carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from roquet.model.host import Host
from roquet.model.message import BatchMessage, BrokerMessage, StoredMessage
from roquet.runtime.clock import Clock
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import ArrivingListener, CommitLogDispatcher
from roquet.store.lane import BurstResult
from roquet.store.reader import PULL_BYTES_MAX, MessageFilter
from roquet.store.recovery import RecoveryReport
from roquet.store.results import (
    BoundaryType,
    Bytes,
    GetMessageResult,
    PutMessageResult,
    QueryMessageResult,
)
from roquet.store.running_flags import RunningFlags
from roquet.store.stats import StoreStatsService

PutDone = Callable[[PutMessageResult], None]
PutHook = Callable[[BrokerMessage | BatchMessage], PutMessageResult | None]


class Lifecycle(Protocol):
    """From an unopened directory to a closed one."""

    def load(self) -> RecoveryReport:
        """Take the store, open its files and recover them."""
        ...

    def start(self) -> None:
        """Take puts from here on."""
        ...

    def shutdown(self) -> None:
        """Put everything on disk and let go of the store; safe to call twice."""
        ...

    def destroy(self) -> None:
        """Delete every file of a store that is shut down."""
        ...

    @property
    def is_shut_down(self) -> bool:
        """Whether :meth:`shutdown` was called."""
        ...


class MessagePut(Protocol):
    """Appending."""

    def submit(self, message: BrokerMessage | BatchMessage, done: PutDone | None = None) -> None:
        """Append as part of a burst; ``done`` gets the answer once it is known."""
        ...

    def finish_burst(self) -> None:
        """Dispatch what was submitted, then answer."""
        ...

    def put_burst(self, messages: Sequence[BrokerMessage]) -> BurstResult:
        """Append and dispatch many messages at once without waiting for the disk."""
        ...

    def put_message(self, message: BrokerMessage | BatchMessage) -> PutMessageResult:
        """Append one message or batch and wait for the answer."""
        ...


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
        ...

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
        """As :meth:`get_message`, or ``None`` when that may wait for the disk."""
        ...

    def will_block(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether reading there may wait for the disk, so that a thread should do it."""
        ...


class QueueOffsets(Protocol):
    """Numbers of a queue."""

    def max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """The place behind the last message; not ``committed``: the place of the next append."""
        ...

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The place of the oldest message that is still there, -1 for no queue."""
        ...

    def total_in_queue(self, topic: str, queue_id: int) -> int:
        """How many messages a queue holds."""
        ...

    def physical_offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Where the record of a place lies in the log, -1 for none."""
        ...

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """The first message stored at or after a time, or (upper) the last up to it."""
        ...


class TimeLookup(Protocol):
    """When messages were stored."""

    @property
    def clock(self) -> Clock:
        """The time."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def earliest_message_time_ms(self) -> int:
        """Store time of the oldest record of the log, -1 for none."""
        ...

    def earliest_message_time_in_queue_ms(self, topic: str, queue_id: int) -> int:
        """Store time of the oldest message of a queue, -1 for none."""
        ...

    def message_store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a message, -1 if it is not there."""
        ...


class MessageLookup(Protocol):
    """Single messages, by their place in the log or by key."""

    def select_one(self, physical_offset: int, size_bytes: int | None = None) -> Bytes | None:
        """The record at an offset of the log, ``None`` if there is no good one."""
        ...

    def look_message(
        self, physical_offset: int, size_bytes: int | None = None
    ) -> StoredMessage | None:
        """The message at an offset of the log."""
        ...

    def query_message(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> QueryMessageResult:
        """Records of a topic with a key in a range of time."""
        ...

    def message_ids(
        self, topic: str, queue_id: int, begin_offset: int, end_offset: int, store_host: Host
    ) -> dict[str, int]:
        """Offset message ids of a range of a queue, each with its queue offset."""
        ...


class Replication(Protocol):
    """The log as bytes, for master and slave."""

    @property
    def max_physical_offset(self) -> int:
        """End of the readable log."""
        ...

    @property
    def min_physical_offset(self) -> int:
        """The oldest byte of the log."""
        ...

    @property
    def confirm_offset(self) -> int:
        """End of what readers may see."""
        ...

    def set_confirm_offset(self, physical_offset: int | None) -> None:
        """Show readers nothing from an offset on; ``None`` takes that back."""
        ...

    def commit_log_data(self, physical_offset: int) -> memoryview | None:
        """The log from an offset to at most the end of its segment."""
        ...

    def bulk_commit_log_data(self, physical_offset: int, size_bytes: int) -> list[memoryview]:
        """The log from an offset on, over as many segments as it takes."""
        ...

    def append_to_commit_log(self, physical_offset: int, data: bytes | memoryview) -> bool:
        """Append bytes of a master's log; false if that is not where the log ends."""
        ...

    def is_offset_aligned(self, physical_offset: int) -> bool:
        """Whether a record, or the end of a segment or of the log, begins at an offset."""
        ...

    def truncate_to(self, physical_offset: int) -> None:
        """Erase the log and what is derived from it from an offset on."""
        ...

    def reset_write_offset(self, physical_offset: int) -> None:
        """Let the next append go to an offset: begin an empty log there, or truncate."""
        ...

    def update_ha_master_address(self, address: str) -> None:
        """Tell a slave whom to follow."""
        ...

    @property
    def ha_master_address(self) -> str:
        """Whom a slave follows, empty for nobody."""
        ...

    def slave_behind_bytes(self) -> int:
        """How much of the log the slave that is furthest has not yet got."""
        ...


class Maintenance(Protocol):
    """What an administrator may ask for."""

    def flush(self) -> int:
        """Put everything appended so far on disk; returns how far that is."""
        ...

    def delete_files_manually(self, *, archived_offset: int | None = None) -> None:
        """Delete segments that are old enough, whatever the hour.

        Or, with ``archived_offset``, those that end at or before this physical offset, however
        young: somebody has them elsewhere.
        """
        ...

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Delete the queues of topics; returns how many topics had any."""
        ...

    def clean_unused_topics(self, retained: Iterable[str]) -> int:
        """Delete the queues of topics that are neither retained nor the broker's own."""
        ...

    def clean_expired_consume_queues(self) -> int:
        """Delete queues none of whose messages is in the log any more; returns how many."""
        ...


class Health(Protocol):
    """How far behind and how busy a store is."""

    @property
    def flags(self) -> RunningFlags:
        """What it may do at the moment."""
        ...

    @property
    def flushed_offset(self) -> int:
        """End of what is on disk."""
        ...

    def remaining_to_flush_bytes(self) -> int:
        """How much of the readable log is not on disk."""
        ...

    def remaining_to_commit_bytes(self) -> int:
        """How much of the log is in transient buffers only."""
        ...

    def remaining_transient_buffers(self) -> int:
        """How many transient buffers are free; the largest int when none are used."""
        ...

    def is_transient_store_pool_deficient(self) -> bool:
        """Whether all transient buffers are in use."""
        ...

    def dispatch_behind_bytes(self) -> int:
        """How much of the log is not dispatched."""
        ...

    def dispatch_behind_ms(self) -> int:
        """How much older than the newest record the last dispatched one is."""
        ...

    def lock_time_ms(self) -> int:
        """How long the append under way has taken, 0 when none is."""
        ...

    def is_os_page_cache_busy(self) -> bool:
        """Whether appends take too long."""
        ...

    def is_in_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is there but too far from the end to be in memory."""
        ...

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int, batch: int = 1) -> bool:
        """Whether the pages of messages are in memory now."""
        ...

    def is_in_store(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is there."""
        ...

    def runtime_info(self) -> dict[str, str]:
        """Counters and marks under upstream's names."""
        ...

    def running_data_info(self) -> str:
        """The counters as text."""
        ...


class Extension(Protocol):
    """Where others join in."""

    @property
    def config(self) -> MessageStoreConfig:
        """The settings."""
        ...

    @property
    def stats(self) -> StoreStatsService:
        """The counters."""
        ...

    @property
    def queues(self) -> ConsumeQueueStore:
        """All queues."""
        ...

    def find_consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that exists."""
        ...

    @property
    def put_hooks(self) -> list[PutHook]:
        """Asked before each put; the first answer that is not ``None`` refuses it."""
        ...

    @property
    def dispatchers(self) -> list[CommitLogDispatcher]:
        """Told of every record in the order of the log."""
        ...

    def add_dispatcher(self, dispatcher: CommitLogDispatcher) -> None:
        """Join the dispatchers."""
        ...

    def add_arriving_listener(self, listener: ArrivingListener) -> None:
        """Be told of every queue that grew, once a burst."""
        ...


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
    Extension,
    Protocol,
):
    """The whole of it."""
