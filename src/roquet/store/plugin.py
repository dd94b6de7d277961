"""Stores that stand before a store: upstream's messageStorePlugIn.

Owns the chain. ``messageStorePlugIn`` holds names separated by commas, each
``package.module:Class`` or the name of an entry point of group ``roquet.message_stores``. The first
name becomes the outermost store, as in upstream's MessageStoreFactory.

A plug-in is a subclass of :class:`PluginMessageStore` and overrides what it is about. Puts come in
by three doors, :meth:`~PluginMessageStore.submit`, :meth:`~PluginMessageStore.put_burst` and
:meth:`~PluginMessageStore.put_message`; who wants to see or refuse every put overrides all three,
or adds a put hook, which they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from roquet.errors import ConfigError, RoquetError
from roquet.model.host import Host
from roquet.model.message import BatchMessage, BrokerMessage, StoredMessage
from roquet.runtime.clock import Clock
from roquet.runtime.plugin import plugin_names
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import ArrivingListener, CommitLogDispatcher
from roquet.store.lane import BurstResult
from roquet.store.message_store import MessageStore, PutDone, PutHook
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

SETTING = "messageStorePlugIn"
ENTRY_POINT_GROUP = "roquet.message_stores"


def build_store(config: MessageStoreConfig, store: MessageStore) -> MessageStore:
    """Put the configured plug-ins before a store.

    Raises:
        ConfigError: A name leads to no plug-in, or to one that fails.
    """
    names = plugin_names(config.message_store_plug_in, setting=SETTING, group=ENTRY_POINT_GROUP)
    for name in reversed(names):
        found = name.load()
        if not (isinstance(found, type) and issubclass(found, PluginMessageStore)):
            raise name.refusal(f"{found!r} is no subclass of PluginMessageStore")
        store = name.make(partial(found, store))
    return store


@contextmanager
def plug_in_faults(store: MessageStore) -> Iterator[None]:
    """Tell faults of plug-ins at the start as such; those of Roquet and of files stay as they are.

    Raises:
        ConfigError: A plug-in failed.
    """
    try:
        yield
    except (RoquetError, OSError):
        raise
    except Exception as error:
        if not isinstance(store, PluginMessageStore):
            raise
        raise ConfigError(
            "A plug-in of the store failed at the start.",
            code="plugin",
            detail=f"{type(error).__name__}: {error}",
            hint=f"Mend it, or leave it out of {SETTING}.",
        ) from error


class PluginMessageStore:
    """A store that leaves everything to the next one; plug-ins override parts of it.

    Example:
        >>> class ReadOnly(PluginMessageStore):
        ...     def start(self) -> None:
        ...         super().start()
        ...         self.put_hooks.append(lambda message: REFUSED)
    """

    def __init__(self, next_store: MessageStore) -> None:
        """Stand before ``next_store``."""
        self.next_store = next_store

    # -- from an unopened directory to a closed one ---------------------------------------------

    def load(self) -> RecoveryReport:
        """Take the store, open its files and recover them."""
        return self.next_store.load()

    def start(self) -> None:
        """Take puts from here on."""
        self.next_store.start()

    def shutdown(self) -> None:
        """Put everything on disk and let go of the store; safe to call twice."""
        self.next_store.shutdown()

    def destroy(self) -> None:
        """Delete every file of a store that is shut down."""
        self.next_store.destroy()

    @property
    def is_shut_down(self) -> bool:
        """Whether :meth:`shutdown` was called."""
        return self.next_store.is_shut_down

    # -- appending ------------------------------------------------------------------------------

    def submit(self, message: BrokerMessage | BatchMessage, done: PutDone | None = None) -> None:
        """Append as part of a burst; ``done`` gets the answer once it is known."""
        self.next_store.submit(message, done)

    def finish_burst(self) -> None:
        """Dispatch what was submitted, then answer."""
        self.next_store.finish_burst()

    def put_burst(self, messages: Sequence[BrokerMessage]) -> BurstResult:
        """Append and dispatch many messages at once without waiting for the disk."""
        return self.next_store.put_burst(messages)

    def put_message(self, message: BrokerMessage | BatchMessage) -> PutMessageResult:
        """Append one message or batch and wait for the answer."""
        return self.next_store.put_message(message)

    # -- reading a queue ------------------------------------------------------------------------

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
        return self.next_store.get_message(
            topic,
            queue_id,
            queue_offset,
            max_messages,
            max_total_bytes=max_total_bytes,
            message_filter=message_filter,
        )

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
        """As :meth:`get_message`, or ``None`` when that may wait for the disk.

        A plug-in that reads in a way of its own is asked in a thread, unless it says more here.
        """
        if type(self).get_message is not PluginMessageStore.get_message:
            return None
        return self.next_store.get_message_in_memory(
            topic,
            queue_id,
            queue_offset,
            max_messages,
            max_total_bytes=max_total_bytes,
            message_filter=message_filter,
        )

    def will_block(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether reading there may wait for the disk, so that a thread should do it."""
        return self.next_store.will_block(topic, queue_id, queue_offset)

    # -- numbers of a queue ---------------------------------------------------------------------

    def max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """The place behind the last message; not ``committed``: the place of the next append."""
        return self.next_store.max_offset_in_queue(topic, queue_id, committed=committed)

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The place of the oldest message that is still there, -1 for no queue."""
        return self.next_store.min_offset_in_queue(topic, queue_id)

    def total_in_queue(self, topic: str, queue_id: int) -> int:
        """How many messages a queue holds."""
        return self.next_store.total_in_queue(topic, queue_id)

    def physical_offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Where the record of a place lies in the log, -1 for none."""
        return self.next_store.physical_offset_in_queue(topic, queue_id, queue_offset)

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """The first message stored at or after a time, or (upper) the last up to it."""
        return self.next_store.offset_by_time(topic, queue_id, timestamp_ms, boundary)

    # -- when messages were stored --------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.next_store.clock

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.next_store.now_ms()

    def earliest_message_time_ms(self) -> int:
        """Store time of the oldest record of the log, -1 for none."""
        return self.next_store.earliest_message_time_ms()

    def earliest_message_time_in_queue_ms(self, topic: str, queue_id: int) -> int:
        """Store time of the oldest message of a queue, -1 for none."""
        return self.next_store.earliest_message_time_in_queue_ms(topic, queue_id)

    def message_store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time of a message, -1 if it is not there."""
        return self.next_store.message_store_time_ms(topic, queue_id, queue_offset)

    # -- single messages, by their place in the log or by key -----------------------------------

    def select_one(self, physical_offset: int, size_bytes: int | None = None) -> Bytes | None:
        """The record at an offset of the log, ``None`` if there is no good one."""
        return self.next_store.select_one(physical_offset, size_bytes)

    def look_message(
        self, physical_offset: int, size_bytes: int | None = None
    ) -> StoredMessage | None:
        """The message at an offset of the log."""
        return self.next_store.look_message(physical_offset, size_bytes)

    def query_message(
        self, topic: str, key: str, max_messages: int, begin_ms: int, end_ms: int
    ) -> QueryMessageResult:
        """Records of a topic with a key in a range of time."""
        return self.next_store.query_message(topic, key, max_messages, begin_ms, end_ms)

    def message_ids(
        self, topic: str, queue_id: int, begin_offset: int, end_offset: int, store_host: Host
    ) -> dict[str, int]:
        """Offset message ids of a range of a queue, each with its queue offset."""
        return self.next_store.message_ids(topic, queue_id, begin_offset, end_offset, store_host)

    # -- the log as bytes, for master and slave -------------------------------------------------

    @property
    def max_physical_offset(self) -> int:
        """End of the readable log."""
        return self.next_store.max_physical_offset

    @property
    def min_physical_offset(self) -> int:
        """The oldest byte of the log."""
        return self.next_store.min_physical_offset

    @property
    def confirm_offset(self) -> int:
        """End of what readers may see."""
        return self.next_store.confirm_offset

    def set_confirm_offset(self, physical_offset: int | None) -> None:
        """Show readers nothing from an offset on; ``None`` takes that back."""
        self.next_store.set_confirm_offset(physical_offset)

    def commit_log_data(self, physical_offset: int) -> memoryview | None:
        """The log from an offset to at most the end of its segment."""
        return self.next_store.commit_log_data(physical_offset)

    def bulk_commit_log_data(self, physical_offset: int, size_bytes: int) -> list[memoryview]:
        """The log from an offset on, over as many segments as it takes."""
        return self.next_store.bulk_commit_log_data(physical_offset, size_bytes)

    def append_to_commit_log(self, physical_offset: int, data: bytes | memoryview) -> bool:
        """Append bytes of a master's log; false if that is not where the log ends."""
        return self.next_store.append_to_commit_log(physical_offset, data)

    def is_offset_aligned(self, physical_offset: int) -> bool:
        """Whether a record, or the end of a segment or of the log, begins at an offset."""
        return self.next_store.is_offset_aligned(physical_offset)

    def truncate_to(self, physical_offset: int) -> None:
        """Erase the log and what is derived from it from an offset on."""
        self.next_store.truncate_to(physical_offset)

    def reset_write_offset(self, physical_offset: int) -> None:
        """Let the next append go to an offset: begin an empty log there, or truncate."""
        self.next_store.reset_write_offset(physical_offset)

    def update_ha_master_address(self, address: str) -> None:
        """Tell a slave whom to follow."""
        self.next_store.update_ha_master_address(address)

    @property
    def ha_master_address(self) -> str:
        """Whom a slave follows, empty for nobody."""
        return self.next_store.ha_master_address

    def slave_behind_bytes(self) -> int:
        """How much of the log the slave that is furthest has not yet got."""
        return self.next_store.slave_behind_bytes()

    # -- what an administrator may ask for ------------------------------------------------------

    def flush(self) -> int:
        """Put everything appended so far on disk; returns how far that is."""
        return self.next_store.flush()

    def delete_files_manually(self, *, archived_offset: int | None = None) -> None:
        """Delete segments that are old enough, whatever the hour.

        Or, with ``archived_offset``, those that end at or before this physical offset, however
        young: somebody has them elsewhere.
        """
        self.next_store.delete_files_manually(archived_offset=archived_offset)

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Delete the queues of topics; returns how many topics had any."""
        return self.next_store.delete_topics(topics)

    def clean_unused_topics(self, retained: Iterable[str]) -> int:
        """Delete the queues of topics that are neither retained nor the broker's own."""
        return self.next_store.clean_unused_topics(retained)

    def clean_expired_consume_queues(self) -> int:
        """Delete queues none of whose messages is in the log any more; returns how many."""
        return self.next_store.clean_expired_consume_queues()

    # -- how far behind and how busy a store is -------------------------------------------------

    @property
    def flags(self) -> RunningFlags:
        """What it may do at the moment."""
        return self.next_store.flags

    @property
    def flushed_offset(self) -> int:
        """End of what is on disk."""
        return self.next_store.flushed_offset

    def remaining_to_flush_bytes(self) -> int:
        """How much of the readable log is not on disk."""
        return self.next_store.remaining_to_flush_bytes()

    def remaining_to_commit_bytes(self) -> int:
        """How much of the log is in transient buffers only."""
        return self.next_store.remaining_to_commit_bytes()

    def remaining_transient_buffers(self) -> int:
        """How many transient buffers are free; the largest int when none are used."""
        return self.next_store.remaining_transient_buffers()

    def is_transient_store_pool_deficient(self) -> bool:
        """Whether all transient buffers are in use."""
        return self.next_store.is_transient_store_pool_deficient()

    def dispatch_behind_bytes(self) -> int:
        """How much of the log is not dispatched."""
        return self.next_store.dispatch_behind_bytes()

    def dispatch_behind_ms(self) -> int:
        """How much older than the newest record the last dispatched one is."""
        return self.next_store.dispatch_behind_ms()

    def lock_time_ms(self) -> int:
        """How long the append under way has taken, 0 when none is."""
        return self.next_store.lock_time_ms()

    def is_os_page_cache_busy(self) -> bool:
        """Whether appends take too long."""
        return self.next_store.is_os_page_cache_busy()

    def is_in_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is there but too far from the end to be in memory."""
        return self.next_store.is_in_disk(topic, queue_id, queue_offset)

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int, batch: int = 1) -> bool:
        """Whether the pages of messages are in memory now."""
        return self.next_store.is_in_memory(topic, queue_id, queue_offset, batch)

    def is_in_store(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is there."""
        return self.next_store.is_in_store(topic, queue_id, queue_offset)

    def runtime_info(self) -> dict[str, str]:
        """Counters and marks under upstream's names."""
        return self.next_store.runtime_info()

    def running_data_info(self) -> str:
        """The counters as text."""
        return self.next_store.running_data_info()

    # -- where others join in -------------------------------------------------------------------

    @property
    def config(self) -> MessageStoreConfig:
        """The settings."""
        return self.next_store.config

    @property
    def stats(self) -> StoreStatsService:
        """The counters."""
        return self.next_store.stats

    @property
    def queues(self) -> ConsumeQueueStore:
        """All queues."""
        return self.next_store.queues

    def find_consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that exists."""
        return self.next_store.find_consume_queue(topic, queue_id)

    @property
    def put_hooks(self) -> list[PutHook]:
        """Asked before each put; the first answer that is not ``None`` refuses it."""
        return self.next_store.put_hooks

    @property
    def dispatchers(self) -> list[CommitLogDispatcher]:
        """Told of every record in the order of the log."""
        return self.next_store.dispatchers

    def add_dispatcher(self, dispatcher: CommitLogDispatcher) -> None:
        """Join the dispatchers."""
        self.next_store.add_dispatcher(dispatcher)

    def add_arriving_listener(self, listener: ArrivingListener) -> None:
        """Be told of every queue that grew, once a burst."""
        self.next_store.add_arriving_listener(listener)
