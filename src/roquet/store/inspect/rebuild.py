"""Rebuilds ConsumeQueues of both types and the index from the log.

Owns the only command of ``roquet store`` that changes a store. The log is read twice: first to
check that it is sound, then to build. In place, everything is built in ``rebuild.tmp`` beside the
old directories and is on disk before each new directory is atomically swapped with the old one. A
crash at any moment leaves either the old directory or the new one, complete; the next rebuild
removes what is left in ``rebuild.tmp``.

Invariants:

* The log and config are never touched. Checkpoint and manifest are changed only if the loss of
  records is accepted: then they are lowered to what the log holds.
* In place, the store is locked from the first pass over the log until the end, and the log is
  synced before anything that relies on it replaces what was there.
* Queue offsets are never reused: a queue whose records have all expired is carried over, and one
  whose records or files are lost continues after the offset it had.
* For a topic that was deleted and re-created, only records since then get entries.

A ConsumeQueueExt is left alone; rebuilt entries hold the tags code itself, as brokers without
extensions write it, and filters then check the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from roquet.errors import StoreDamaged, StoreError
from roquet.format.batch_consume_queue import BATCH_UNIT_BYTES, DEFAULT_BATCH_FILE_BYTES
from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue import DEFAULT_FILE_BYTES, UNIT_BYTES
from roquet.format.derived import QueueKey, light_places
from roquet.runtime.clock import Clock
from roquet.runtime.failpoint import failpoint
from roquet.runtime.files import Files
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.index import IndexService
from roquet.store.inspect.accepted_loss import accept_loss
from roquet.store.inspect.log_survey import LogSurvey
from roquet.store.inspect.report import Fault
from roquet.store.inspect.verify import Progress, no_progress
from roquet.store.manifest import StoreManifest, derived_contents
from roquet.store.store_lock import StoreLock
from roquet.storefiles.index_files import usual_shape
from roquet.storefiles.layout import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    INDEX,
    ROCKSDB_CONSUME_QUEUE,
)
from roquet.storefiles.manifest import Manifest, read_manifest
from roquet.storefiles.manifest_checks import LogSpan, log_facts, log_losses, queues_held
from roquet.storefiles.queues import BatchQueueView, QueueView, usual_file_bytes
from roquet.storefiles.small_files import has_queues_in_rocksdb
from roquet.storefiles.view import StoreView
from roquet.storefiles.vouching import refuse
from roquet.storefiles.walk import BadRecord, LogWalk

TEMPORARY = "rebuild.tmp"
BURST_RECORDS = 4096
COPY_BYTES = 1 << 20
SCHEMA_VERSION = 1
_PARTS = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX)
_ALWAYS = (CONSUME_QUEUE, INDEX)


class RebuildPlan(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a rebuild will do.

    Attributes:
        target: Directory that gets ``consumequeue``, ``index`` and, for topics that need it,
            ``batchconsumequeue``.
        in_place: Whether that is the store itself.
        accepts_loss: Whether records missing at either end of the log are given up.
        consume_queue_file_bytes: Length of a ConsumeQueue file.
        batch_consume_queue_file_bytes: Length of a file of a batch consume queue.
        index_slots: Slots of an index file.
        index_entries: Entries of an index file.
        replaces: Directories whose content is replaced.
    """

    target: str
    in_place: bool
    accepts_loss: bool = False
    consume_queue_file_bytes: int
    index_slots: int
    index_entries: int
    replaces: list[str]
    batch_consume_queue_file_bytes: int = DEFAULT_BATCH_FILE_BYTES


class RebuildResult(Struct, kw_only=True, rename="camel"):
    """What a rebuild did.

    Attributes:
        plan: What was to be done.
        records: Records read.
        queues: Queues built.
        carried_queues: Queues without records that were carried over.
        index_files: Index files built.
        faults: Bad records of the log, which have no entries now; never any in place.
    """

    plan: RebuildPlan
    schema: int = SCHEMA_VERSION
    records: int = 0
    queues: int = 0
    carried_queues: int = 0
    index_files: int = 0
    faults: list[Fault] = field(default_factory=list)


def plan_rebuild(
    view: StoreView,
    *,
    into: Path | None,
    index_slots: int | None = None,
    index_entries: int | None = None,
    accepts_loss: bool = False,
) -> RebuildPlan:
    """Decide sizes and target; nothing is touched.

    Raises:
        StoreError: The target cannot be used, or the sizes are unknown.
    """
    if into is not None:
        _check_target(view, into)
    files, root = view.files, view.root
    if has_queues_in_rocksdb(view):
        raise StoreError(
            "the queues of this store cannot be rebuilt",
            detail=f"they are kept in RocksDB, in {ROCKSDB_CONSUME_QUEUE}",
            hint="only ConsumeQueues in files can be rebuilt",
        )
    index_files, _ = view.open_index(slots=index_slots)
    slots, entries = usual_shape(index_files, index_slots, index_entries)
    return RebuildPlan(
        target=str(root if into is None else into),
        in_place=into is None,
        accepts_loss=accepts_loss and into is None,
        consume_queue_file_bytes=usual_file_bytes(
            (queue.segments for queue in view.queues.values()),
            unit_bytes=UNIT_BYTES,
            default=DEFAULT_FILE_BYTES,
        ),
        batch_consume_queue_file_bytes=usual_file_bytes(
            (queue.segments for queue in view.batch_queues.values()),
            unit_bytes=BATCH_UNIT_BYTES,
            default=DEFAULT_BATCH_FILE_BYTES,
        ),
        index_slots=slots,
        index_entries=entries,
        replaces=[
            str(root / part) for part in _PARTS if files.exists(root / part) and into is None
        ],
    )


def _check_target(view: StoreView, into: Path) -> None:
    target = into.resolve()
    if view.files.exists(target) and not view.files.is_dir(target):
        raise StoreError(f"{into} is not a directory", hint="name a new or empty directory")
    if view.files.list_dir(target):
        raise StoreError(
            f"{into} is not empty",
            detail="a rebuild writes queues and index into a new directory",
            hint="name a new or empty directory, or omit --into to rebuild in place",
        )
    if target == view.root or view.root in target.parents:
        raise StoreError(f"{into} is inside the store", hint="name a directory outside the store")


class _Builder:
    """The second pass: builds queues and index in a directory."""

    def __init__(self, view: StoreView, plan: RebuildPlan, clock: Clock, target: Path) -> None:
        self._view = view
        self._target = target
        self._manifest = _manifest_of(view, plan)
        config = MessageStoreConfig(
            consume_queue_file_bytes=plan.consume_queue_file_bytes,
            batch_consume_queue_file_bytes=plan.batch_consume_queue_file_bytes,
        )
        for part in _PARTS:
            if part in _ALWAYS or view.files.exists(view.root / part):
                view.files.make_dirs(target / part)
        self._queues = ConsumeQueueStore(view.files, target, config)
        self._queues.is_batch_topic = view.batch_topics().__contains__
        self._index = IndexService(
            view.files,
            target / INDEX,
            slots=plan.index_slots,
            entries=plan.index_entries,
            clock=clock,
        )

    def run(
        self, survey: LogSurvey, end: int | None, result: RebuildResult, progress: Progress
    ) -> None:
        """Build everything and put it on disk."""
        view = self._view
        done = view.max_offset - view.min_offset
        walk = LogWalk(view, on_damage=_pass_over, end=end)
        try:
            for record in walk.records():
                result.records += 1
                for request in self._requests(record, survey.restarts):
                    self._queues.put(request)
                self._index.build(record)
                if result.records % BURST_RECORDS == 0:
                    self._queues.write_pending()
                    progress(done + walk.position - view.min_offset)
            self._queues.write_pending()
            self._queues.sync(least_pages=0)
            result.queues = sum(1 for _ in self._queues)
            result.index_files = self._index.file_count
            result.carried_queues = self._keep_ends(result.plan)
        finally:
            self._queues.close()
            self._index.close()

    def _requests(
        self, record: DispatchRequest, restarts: dict[QueueKey, int]
    ) -> Iterator[DispatchRequest]:
        """The queue entries of a record: its own, and those of light queues."""
        start = restarts.get(QueueKey(record.topic, record.queue_id), 0)
        if record.physical_offset >= start:
            yield record
        for key, queue_offset in light_places(record):
            yield record._replace(topic=key.topic, queue_id=key.queue_id, queue_offset=queue_offset)

    def _keep_ends(self, plan: RebuildPlan) -> int:
        """Let no queue continue below the offset it had; returns how many were copied for that.

        Queues that had messages but have none in the log are copied. A queue that lost files or
        records is filled up.
        """
        ends = self._ends(plan)
        carried: set[QueueKey] = set()
        for queue in self._view.all_queues:
            key = queue.key
            if (
                self._queues.find(*key) is None
                and self._is_expired(queue)
                and queue.written_end() >= ends.get(key, 0)
            ):
                self._copy(queue)
                carried.add(key)
        for key in ends.keys() - carried:
            self._queues.go_on_at(*key, ends[key])
        self._queues.sync(least_pages=0)
        return len(carried)

    def _ends(self, plan: RebuildPlan) -> dict[QueueKey, int]:
        """The offsets that queues had, as far as known.

        If a loss is accepted, existing entries count too. Otherwise they may be leftovers of a
        Java broker after the end of a queue.
        """
        ends: dict[QueueKey, int] = {}
        if self._manifest is not None:
            held = queues_held(self._view, self._manifest)
            ends = {bounds.key: bounds.end for bounds in held if not bounds.is_batch}
        if plan.accepts_loss:
            for key, queue in self._view.queues.items():
                if (end := max(ends.get(key, 0), queue.written_end())) > 0:
                    ends[key] = end
        return ends

    def contents(self) -> Manifest:
        """What was built: queues with their offsets, and names of index files."""
        return derived_contents(self._queues, self._view.files.list_dir(self._target / INDEX))

    def _is_expired(self, queue: QueueView) -> bool:
        """Whether the last record of a queue is older than the log."""
        last = queue.unit(queue.written_end() - 1)
        return (
            last is not None and not last.is_filler and last.physical_offset < self._view.min_offset
        )

    def _copy(self, queue: QueueView) -> None:
        files, key = self._view.files, queue.key
        part = BATCH_CONSUME_QUEUE if isinstance(queue, BatchQueueView) else CONSUME_QUEUE
        directory = files.inside(self._target / part, key.topic, str(key.queue_id))
        files.make_dirs(directory)
        for file in queue.segments.files:
            source = files.open(file.path)
            target = files.open(files.inside(directory, file.path.name), write=True, create=True)
            try:
                files.truncate(target, file.size_bytes)
                for position in range(0, file.size_bytes, COPY_BYTES):
                    data = files.read_at(source, COPY_BYTES, position)
                    if data.strip(b"\0"):
                        files.write_at(target, data, position)
                files.data_sync(target)
            finally:
                files.close(source)
                files.close(target)
        files.sync_dir(directory)


def _pass_over(_damage: BadRecord) -> None:
    """Do nothing: the survey has reported it."""


def rebuild(
    view: StoreView, plan: RebuildPlan, clock: Clock, *, progress: Progress = no_progress
) -> RebuildResult:
    """Carry out a plan.

    Args:
        view: The store, open.
        plan: From :func:`plan_rebuild`.
        clock: Names index files.
        progress: Called now and then with the bytes done, of twice the length of the log.

    Raises:
        StoreLocked: In place, and the store is in use; nothing was changed.
        StoreDamaged: In place, and the log has faults; nothing was changed.
    """
    if not plan.in_place:
        return _rebuild_into(view, plan, clock, progress)
    lock = StoreLock(view.files, view.root)
    lock.acquire()
    try:
        with view.reopened_under_lock() as locked:
            return _rebuild_in_place(locked, plan, clock, progress)
    finally:
        lock.release()


def _rebuild_into(
    view: StoreView, plan: RebuildPlan, clock: Clock, progress: Progress
) -> RebuildResult:
    files, target = view.files, Path(plan.target)
    was_there = files.exists(target)
    end = view.stable_end() if view.is_running else None
    try:
        return _build(view, plan, clock, target, end, progress)[0]
    except BaseException:
        for part in _PARTS:
            remove_tree(files, target / part)
        if not was_there:
            files.remove_dir(target)
        raise


def _rebuild_in_place(
    view: StoreView, plan: RebuildPlan, clock: Clock, progress: Progress
) -> RebuildResult:
    files, root = view.files, view.root
    temporary = root / TEMPORARY
    remove_tree(files, temporary)
    try:
        result, contents = _build(view, plan, clock, temporary, None, progress)
        _sync_log(view)
        failpoint("rebuild.built")
        if not plan.accepts_loss:
            manifest = StoreManifest(files, root)
            manifest.load()
            manifest.forget_derived()
        for part in _PARTS:
            if files.exists(temporary / part):
                _swap(files, temporary / part, root / part)
                failpoint(f"rebuild.swapped.{part}")
        if plan.accepts_loss:
            accept_loss(view, *contents)
    finally:
        remove_tree(files, temporary)
        files.sync_dir(root)
    return result


def _sync_log(view: StoreView) -> None:
    """Make durable what the new queues, and marks after an accepted loss, rely on.

    A killed process may have left the end of the log, or the name of a segment, in memory only.
    """
    files = view.files
    for segment in view.segments:
        fd = files.open(segment.path)
        try:
            files.data_sync(fd)
        finally:
            files.close(fd)
    if view.segments:
        files.sync_dir(view.log_directory)


def _build(  # noqa: PLR0917 - the parts of one rebuild
    view: StoreView,
    plan: RebuildPlan,
    clock: Clock,
    target: Path,
    end: int | None,
    progress: Progress,
) -> tuple[RebuildResult, tuple[LogSpan, Manifest]]:
    survey = LogSurvey(view, clock, end, accepts_loss=plan.accepts_loss)
    faults = survey.run(progress)
    if faults and plan.in_place:
        listed = "; ".join(f"{f.file} {f.where}: {f.field} {f.detail}" for f in faults[:3])
        raise StoreDamaged(
            f"the log has {len(faults)} faults, so nothing was rebuilt",
            detail=listed,
            hint="run 'roquet store verify' for all of them; repair the log from a replica, or "
            "build into another directory with --into",
        )
    if plan.in_place and not plan.accepts_loss:
        found = log_losses(view, _manifest_of(view, plan), survey.span)
        refuse(found, log_facts(view, survey.span))
    result = RebuildResult(plan=plan, faults=faults)
    builder = _Builder(view, plan, clock, target)
    builder.run(survey, end, result, progress)
    return result, (survey.span, builder.contents())


def _manifest_of(view: StoreView, plan: RebuildPlan) -> Manifest | None:
    """The manifest; ``None`` if it cannot be read but a loss is accepted."""
    try:
        return read_manifest(view.files, view.root)
    except StoreDamaged:
        if not plan.accepts_loss:
            raise
        return None


def _swap(files: Files, new: Path, old: Path) -> None:
    """Swap a new directory with the old one, if any."""
    if not files.exists(old):
        files.rename(new, old)
    else:
        try:
            files.exchange(new, old)
        except OSError as error:
            raise StoreError(
                f"{old} cannot be replaced in one step",
                detail=f"{error.strerror}",
                hint="build into another directory with --into and move it by hand",
            ) from error
    files.sync_dir(old.parent)
    files.sync_dir(new.parent)


def remove_tree(files: Files, path: Path) -> None:
    """Remove a directory and everything below it, if it exists."""
    if not files.is_dir(path):
        files.unlink(path)
        return
    for name in files.list_dir(path):
        remove_tree(files, path / name)
    files.remove_dir(path)
