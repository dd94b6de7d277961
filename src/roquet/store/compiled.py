"""The only place where the store calls compiled code.

Where the modules are built and enabled, plain messages and records go through compiled code, and
the rest through the reference path. Results and files are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from roquet.runtime import compiled
from roquet.store.commit_log import CommitLog
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import Dispatcher
from roquet.store.index import IndexService

if compiled.is_built("roquet.store._append"):
    from roquet.format import _record
    from roquet.store import _append, _consume_queue

__all__ = ["compiled_fits_entry", "compiled_walk", "make_compiled_append"]

Walk = Callable[[memoryview, int, int, int, bool], tuple[int, int, int, int]]
FitsEntry = Callable[[memoryview | bytes, int, bytes, int, int, int], bool]


def compiled_walk() -> Walk | None:
    """The walk over plain records, if it is built."""
    return _record.walk if compiled.is_used("roquet.store._append") else None


def compiled_fits_entry() -> FitsEntry | None:
    """The check of a record against its queue entry, if it is built."""
    return _record.fits_entry if compiled.is_used("roquet.store._append") else None


def make_compiled_append(
    config: MessageStoreConfig,
    commit_log: CommitLog,
    queues: ConsumeQueueStore,
    index: IndexService | None,
    dispatcher: Dispatcher,
) -> _append.PlainAppender | None:
    """The compiled append of a store, ``None`` if it is not built or cannot help.

    Compiled code then also writes the store's queues and dispatches its log.
    """
    if (
        not compiled.is_used("roquet.store._append")
        or config.append_property_crc
        or config.consume_queue_ext
    ):
        return None
    append = _append.PlainAppender(
        commit_log, queues, index, dispatcher, max_body_bytes=config.max_message_bytes
    )
    dispatcher.redispatch = append.redispatch
    if queues.uses_plain_files:
        queues.write_plain = _consume_queue.write_pending
    elif queues.write_hook is not None:
        queues.write_plain = partial(_consume_queue.write_pending, before=queues.write_hook)
    return append
