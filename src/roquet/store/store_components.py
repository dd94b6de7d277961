"""What the components of a store share: its files, its marks, its counters, and its rules.

Creates these, and owns what more than one component needs: how far readers may see, whether the
store can be read, on which thread a function runs.

One owner: puts, bursts and the release of waiting responses happen on the owner's side, under one
lock that is uncontended on an event loop. Background threads pass results through ``post``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from roquet.errors import StoreClosed, StoreDamaged
from roquet.format.consume_queue import CqUnit
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.store.append import Appender
from roquet.store.append_timing import AppendTiming
from roquet.store.checkpoint import StoreCheckpoint
from roquet.store.commit_log import CommitLog
from roquet.store.config import BrokerRole, MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import ArrivingListener, CommitLogDispatcher, Dispatcher
from roquet.store.flush import AckQueue, Post
from roquet.store.index import IndexService
from roquet.store.index_mark import IndexMarkFile
from roquet.store.manifest import StoreManifest
from roquet.store.message_store import PutHook
from roquet.store.read_ahead import ReadAhead
from roquet.store.reader import MessageReader
from roquet.store.running_flags import RunningFlags
from roquet.store.stats import StoreStatsService
from roquet.store.store_lock import StoreLock

log = logging.getLogger(__name__)

INDEX_DIR = "index"
CHECKPOINT_FILE = "checkpoint"


class StoreComponents:
    """The components of one store.

    Attributes:
        lock: Held while appending, dispatching, or changing lists of files.
        logics_lock: Held while queues, index and checkpoint are synced or truncated.
        is_sync_flush: Whether responses wait for the disk.
        confirm_limit: Readers see nothing from this physical offset on.
        grown: Called on the owner's side when the readable log may have grown, or more of it is
            on disk; ``None`` unless somebody follows the log.
    """

    def __init__(
        self, root: Path, config: MessageStoreConfig, *, files: Files, clock: Clock, post: Post
    ) -> None:
        """Create the components of a store in ``root``; no file is touched."""
        self.root = root
        self.config = config
        self.is_sync_flush = config.is_sync_flush
        self.files = files
        self.clock = clock
        self._post = post
        self.lock = threading.RLock()
        self.logics_lock = threading.Lock()
        self.store_lock = StoreLock(files, root)
        self.flags = RunningFlags()
        self.stats = StoreStatsService(clock)
        self.timing = AppendTiming(clock, config)
        self.checkpoint = StoreCheckpoint(files, root / CHECKPOINT_FILE)
        self.manifest = StoreManifest(files, root)
        self.commit_log = CommitLog(files, root, config, clock)
        self.queues = ConsumeQueueStore(files, root, config)
        self.index = self._make_index()
        self.dispatcher = Dispatcher(
            self.commit_log,
            self.queues,
            self.index,
            self.flags,
            is_replica=config.broker_role is BrokerRole.SLAVE,
        )
        self.appender = Appender(config, self.commit_log, self.queues, self.index, self.dispatcher)
        self.read_ahead = ReadAhead(self.commit_log, clock)
        self.reader = MessageReader(
            self.commit_log,
            self.queues,
            self.index,
            config,
            self.stats,
            read_ahead=self.read_ahead,
        )
        self.acks = AckQueue(config, clock)
        self.put_hooks: list[PutHook] = []
        self.confirm_limit: int | None = None
        self.grown: Callable[[], None] | None = None

    def _make_index(self) -> IndexService | None:
        if not self.config.message_index:
            return None
        return IndexService(
            self.files,
            self.root / INDEX_DIR,
            slots=self.config.index_slots,
            entries=self.config.index_entries,
            clock=self.clock,
            mark=IndexMarkFile(self.files, self.root),
        )

    # -- what all share -----------------------------------------------------------------------

    @property
    def confirm_offset(self) -> int:
        """End of what readers may see: flushed with SYNC_FLUSH, appended otherwise.

        Never beyond ``confirm_limit``.
        """
        end = self.commit_log.max_offset
        if self.is_sync_flush:
            end = min(end, self.commit_log.flushed_offset)
        limit = self.confirm_limit
        return end if limit is None else min(end, limit)

    def confirms_at_once(self) -> bool:
        """Whether an append is confirmed as soon as it is made."""
        return (
            not self.is_sync_flush and self.commit_log.pool is None and self.confirm_limit is None
        )

    def check_readable(self) -> None:
        """Raise :class:`StoreClosed` if the store may not be read."""
        if not self.flags.is_readable:
            raise StoreClosed(
                f"{self.root} cannot be read at the moment", detail=", ".join(self.flags.reasons())
            )

    def run_owned(self, function: Callable[[], None]) -> None:
        """Run a function on the owner's side, under the lock."""

        def locked() -> None:
            with self.lock:
                function()

        self._post(locked)

    def dispatch_confirmed(self) -> None:
        """Dispatch what is confirmed but not yet dispatched."""
        if self.dispatcher.dispatched_offset < self.confirm_offset:
            self.dispatcher.run(self.confirm_offset)

    def catch_up(self) -> None:
        """Dispatch what is confirmed; damage is logged and sets a flag."""
        try:
            self.dispatcher.run(self.confirm_offset)
        except StoreDamaged as error:
            log.critical("queues and index remain behind the log: %s", error)

    def unit(self, topic: str, queue_id: int, queue_offset: int) -> CqUnit | None:
        """The entry of a message; filler does not count."""
        queue = self.queues.find(topic, queue_id)
        unit = queue.unit_at(queue_offset) if queue is not None else None
        return None if unit is None or unit.is_filler else unit

    # -- joining in ---------------------------------------------------------------------------

    def find_consume_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that exists."""
        return self.queues.find(topic, queue_id)

    @property
    def dispatchers(self) -> list[CommitLogDispatcher]:
        """Called with every record, in the order of the log."""
        return self.dispatcher.dispatchers

    def add_arriving_listener(self, listener: ArrivingListener) -> None:
        """Call ``listener`` with every queue that grew, once per burst."""
        self.dispatcher.arriving.append(listener)
