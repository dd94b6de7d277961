"""The store: log, queues and index, with a common lifecycle.

Owns the composition: which component implements which part of the interface.

============================================ ===========================================
part of the interface                        component
============================================ ===========================================
Lifecycle                                    :mod:`roquet.store.lifecycle`
MessagePut                                   :mod:`roquet.store.puts`
MessageGet, QueueOffsets, TimeLookup,        :mod:`roquet.store.queries`
MessageLookup
Replication                                  :mod:`roquet.store.replicated_log`
Maintenance                                  :mod:`roquet.store.maintenance`
Health                                       :mod:`roquet.store.store_health`
Extension                                    :mod:`roquet.store.store_components`
============================================ ===========================================

Files of a store, below its root:

=================== ==========================================================================
commitlog/          segments of the log
consumequeue/       <topic>/<queueId>/ entries that point into it
consumequeue_ext/   the same, with filter bitmaps, when enableConsumeQueueExt is on
batchconsumequeue/  entries that point at batches, of topics with queue.type=BatchCQ
index/              hash files from key to offset
checkpoint          how far each of these is on disk
roquet-manifest.json  what the store held when it was last closed
roquet-index.mark   how far the newest index file is on disk
lock                held while a process uses the store (record lock on byte 0)
abort               exists while it runs; at start it means that the last exit was unclean
=================== ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from roquet.runtime.clock import Clock, SystemClock
from roquet.runtime.files import Files
from roquet.store.config import MessageStoreConfig
from roquet.store.flush import Post
from roquet.store.forward import forwards
from roquet.store.lifecycle import StoreLifecycle
from roquet.store.maintenance import StoreMaintenance
from roquet.store.message_store import (
    ExtensionPoints,
    Health,
    Lifecycle,
    Maintenance,
    MessageGet,
    MessageLookup,
    MessagePut,
    MessageStore,
    QueueOffsets,
    Replication,
    TimeLookup,
)
from roquet.store.puts import Puts
from roquet.store.queries import Queries
from roquet.store.replicated_log import ReplicatedLog
from roquet.store.retention import Retention
from roquet.store.store_components import StoreComponents
from roquet.store.store_health import StoreHealth
from roquet.store.store_threads import StoreThreads


@forwards("lifecycle", Lifecycle)
@forwards("puts", MessagePut)
@forwards("queries", MessageGet, QueueOffsets, TimeLookup, MessageLookup)
@forwards("replicated_log", Replication)
@forwards("maintenance", Maintenance)
@forwards("health", Health)
@forwards("components", ExtensionPoints)
class DefaultMessageStore(MessageStore):
    """A message store on a directory."""

    def __init__(
        self,
        root: Path,
        config: MessageStoreConfig | None = None,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        post: Post | None = None,
        on_fatal: Callable[[OSError], None] | None = None,
    ) -> None:
        """Prepare a store in ``root``; nothing is touched before :meth:`load`.

        Args:
            root: The store's directory.
            config: Settings; upstream's defaults if omitted.
            files: The file system.
            clock: The time.
            post: Runs a function on the owner's side; on an event loop its
                ``call_soon_threadsafe``. Without one, functions run on the calling thread.
            on_fatal: Called once if the log can no longer be put on disk; the owner should exit.
        """
        components = self.components = StoreComponents(
            root,
            config or MessageStoreConfig(),
            files=files or Files(),
            clock=clock or SystemClock(),
            post=post or (lambda function: function()),
        )
        self.root = root
        self.commit_log = components.commit_log
        self.index = components.index
        self.checkpoint = components.checkpoint
        self.manifest = components.manifest
        self.dispatcher = components.dispatcher
        self.appender = components.appender
        self.reader = components.reader
        self.acks = components.acks
        self.retention = Retention(
            components.files,
            root,
            components.config,
            components.clock,
            commit_log=components.commit_log,
            queues=components.queues,
            index=components.index,
            flags=components.flags,
            lock=components.lock,
        )
        self.upkeep = StoreThreads(components, self.retention, on_fatal)
        self.flusher = self.upkeep.flusher
        self.puts = Puts(components, self.flusher)
        self.queries = Queries(components)
        self.replicated_log = ReplicatedLog(components, self.flusher, self.puts)
        self.maintenance = StoreMaintenance(components, self.flusher, self.retention)
        self.health = StoreHealth(components)
        self.lifecycle = StoreLifecycle(components, self.puts, self.upkeep, self.retention)

    def start(self, *, threads: bool = True) -> None:
        """Start accepting puts; see :meth:`StoreLifecycle.start`."""
        self.lifecycle.start(threads=threads)
