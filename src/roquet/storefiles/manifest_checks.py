"""Missing data: compares the log and its queues with manifest and checkpoint.

Makes the same comparison as recovery (:mod:`roquet.storefiles.vouching`), on a stopped store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from roquet.format.checkpoint import Checkpoint
from roquet.format.commit_log import DispatchRequest
from roquet.storefiles.faults import VANISHED, StoreFault
from roquet.storefiles.layout import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    CONSUME_QUEUE,
    INDEX,
    LOCK,
    OUR_MARK,
)
from roquet.storefiles.manifest import (
    Manifest,
    QueueBounds,
    is_made_anew,
    read_manifest,
    vouched_queues,
)
from roquet.storefiles.view import StoreView
from roquet.storefiles.vouching import LogFacts, Loss, Witnesses, losses
from roquet.storefiles.walk import LogWalk


class LogSpan(NamedTuple):
    """How far a walk over the whole log came.

    Attributes:
        end: Physical offset after the last valid record.
        newest_ms: Newest store time of all records, 0 if there are none.
        has_records: Whether there are any records.
    """

    end: int
    newest_ms: int
    has_records: bool

    def after(self, record: DispatchRequest) -> LogSpan:
        """The span with one more record."""
        newest_ms = max(self.newest_ms, record.store_timestamp_ms)
        return LogSpan(record.end_offset, newest_ms, has_records=True)

    def ended(self, walk: LogWalk, view: StoreView) -> LogSpan:
        """The span after the last record; it may end where a segment ends."""
        if walk.tail is not None:
            return self._replace(end=walk.tail.physical_offset)
        return self._replace(end=walk.position if self.has_records else view.min_offset)


def log_losses(view: StoreView, manifest: Manifest | None, span: LogSpan) -> list[Loss]:
    """What manifest and checkpoint vouch for but the log does not hold.

    Queues and index are compared with the log entry by entry elsewhere.
    """
    witnesses = Witnesses(
        manifest=manifest,
        marks=view.checkpoint() or Checkpoint(),
        is_clean=not view.crashed,
        is_ours=not view.crashed and is_ours(view),
        queue_names=lambda _: None,
        index_end=-1,
        newest_entry=-1,
    )
    facts = log_facts(view, span)
    return list(losses(witnesses, facts))


def log_facts(view: StoreView, span: LogSpan) -> LogFacts:
    """The facts about the log that the comparison needs."""
    return LogFacts(
        start=view.min_offset,
        end=span.end,
        segment_bytes=view.segment_bytes,
        has_segments=bool(view.segments),
        has_records=span.has_records,
        newest_ms=span.newest_ms,
        read=view.bytes_at,
    )


def is_ours(view: StoreView) -> bool:
    """Whether Roquet was the last to close the store; not for a store open in this process."""
    path = view.root / LOCK
    return view.files.exists(path) and view.files.read_file(path).startswith(OUR_MARK)


def manifest_faults(view: StoreView, span: LogSpan, now_ms: int) -> Iterator[StoreFault]:
    """What the store held when it was closed but lacks now; nothing for a running store."""
    if view.is_running:
        return
    manifest = read_manifest(view.files, view.root)
    marks = view.checkpoint() or Checkpoint()
    for loss in log_losses(view, manifest, span):
        if loss.file == CHECKPOINT and marks.physic_msg_timestamp_ms > now_ms:
            continue  # the mark itself is wrong, and reported as such
        yield StoreFault(VANISHED, view.root / loss.file, loss.field, loss.detail)
    if manifest is None:
        return
    for bounds in queues_held(view, manifest):
        yield from _queue_losses(view, manifest, bounds)
    if not view.crashed and is_ours(view):
        present = set(view.files.list_dir(view.index_directory))
        for name in manifest.index_files:
            if name not in present:
                detail = "the index file is gone"
                yield StoreFault(VANISHED, view.root / INDEX / name, "file", detail)


def queues_held(view: StoreView, manifest: Manifest) -> Iterator[QueueBounds]:
    """Queues that must exist, unless a Java broker has deleted their topic."""
    return vouched_queues(manifest, None if is_ours(view) else view.known_topics())


def _queue_losses(view: StoreView, manifest: Manifest, bounds: QueueBounds) -> Iterator[StoreFault]:
    key, is_batch = bounds.key, bounds.is_batch
    part = BATCH_CONSUME_QUEUE if is_batch else CONSUME_QUEUE
    path = view.root / part / key.topic / str(key.queue_id)
    queue = (view.batch_queues if is_batch else view.queues).get(key)
    if queue is None or not queue.segments.files:
        detail = f"the queue is gone; it had entries from {bounds.first} to {bounds.end}"
        yield StoreFault(VANISHED, path, "file", detail, key=key)
        return
    end = queue.next_queue_offset()
    if end < bounds.end and not is_made_anew(manifest, queue.unit(queue.first_offset)):
        detail = f"{end}, but there were entries up to {bounds.end}"
        yield StoreFault(VANISHED, path, "maxOffset", detail, key=key)
