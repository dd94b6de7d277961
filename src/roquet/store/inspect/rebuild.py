"""ConsumeQueue and index made anew from the log.

Owns the only way ``roquet store`` changes a store. The log is read twice: first to see that it is
sound, then to build. In place, everything is built in ``rebuild.tmp`` beside the old directories
and is on disk before each new directory changes places with the old one atomically. A crash at any
moment leaves the old directory or the new one, both whole; what is left in ``rebuild.tmp`` is
removed by the next rebuild.

Invariants:

* The log, config and checkpoint are never touched.
* In place, the store is locked from the first pass over the log until the end.
* Queue offsets are never given out twice: a queue whose records have all expired is carried over.
* Of a topic that was deleted and made anew, only the present life gets entries.

A ConsumeQueueExt is left alone; rebuilt entries hold the tags code itself, as brokers without
extensions write it, and filters then look at the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from roquet.errors import StoreDamaged, StoreError
from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue import DEFAULT_FILE_BYTES, UNIT_BYTES
from roquet.format.derived import QueueKey, light_places
from roquet.format.index_file import file_size
from roquet.format.index_view import DEFAULT_ENTRIES, DEFAULT_SLOTS
from roquet.model import sys_flag as flags
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.runtime.clock import Clock
from roquet.runtime.failpoint import failpoint
from roquet.runtime.files import Files
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.index import IndexService
from roquet.store.inspect.layout import CONSUME_QUEUE, INDEX, ROCKSDB_CONSUME_QUEUE
from roquet.store.inspect.queues import QueueView
from roquet.store.inspect.report import Fault, Reporter
from roquet.store.inspect.verify import Progress, no_progress
from roquet.store.inspect.verify_log import RecordChecker
from roquet.store.inspect.view import StoreView
from roquet.store.inspect.walk import Damage, LogWalk
from roquet.store.store_lock import StoreLock

TEMPORARY = "rebuild.tmp"
BURST_RECORDS = 4096
COPY_BYTES = 1 << 20
SCHEMA_VERSION = 1
_BLOCKING_FIELDS = frozenset({"topic", "sysFlag"})


class RebuildPlan(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a rebuild will do.

    Attributes:
        target: Directory that gets ``consumequeue`` and ``index``.
        in_place: Whether that is the store itself.
        consume_queue_file_bytes: Length of a ConsumeQueue file.
        index_slots: Slots of an index file.
        index_entries: Entries of an index file.
        replaces: Directories whose content is replaced.
    """

    target: str
    in_place: bool
    consume_queue_file_bytes: int
    index_slots: int
    index_entries: int
    replaces: list[str]


class RebuildResult(Struct, kw_only=True, rename="camel"):
    """What a rebuild did.

    Attributes:
        plan: What was to be done.
        records: Records read.
        queues: Queues built.
        carried_queues: Queues without records that were carried over.
        index_files: Index files built.
        faults: Bad places of the log that have no entries now; never any in place.
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
) -> RebuildPlan:
    """Decide sizes and place; nothing is touched.

    Raises:
        StoreError: The target cannot be used, or the sizes cannot be told.
    """
    if into is not None:
        _check_target(view, into)
    files, root = view.files, view.root
    if files.is_dir(root / ROCKSDB_CONSUME_QUEUE) and not view.has_queues:
        raise StoreError(
            "the queues of this store cannot be rebuilt",
            detail=f"they are kept in RocksDB, in {ROCKSDB_CONSUME_QUEUE}",
            hint="only ConsumeQueues in files can be rebuilt",
        )
    slots, entries = _index_sizes(view, index_slots, index_entries)
    parts = [CONSUME_QUEUE, INDEX]
    return RebuildPlan(
        target=str(root if into is None else into),
        in_place=into is None,
        consume_queue_file_bytes=_queue_file_bytes(view),
        index_slots=slots,
        index_entries=entries,
        replaces=[str(root / part) for part in parts if files.exists(root / part) and into is None],
    )


def _check_target(view: StoreView, into: Path) -> None:
    target = into.resolve()
    if view.files.exists(target) and not view.files.is_dir(target):
        raise StoreError(f"{into} is not a directory", hint="name a new or empty directory")
    if view.files.list_dir(target):
        raise StoreError(
            f"{into} is not empty",
            detail="a rebuild writes consumequeue and index into a new place",
            hint="name a new or empty directory, or leave --into away to rebuild in place",
        )
    if target == view.root or view.root in target.parents:
        raise StoreError(
            f"{into} is inside the store", hint="name a directory outside of the store"
        )


def _queue_file_bytes(view: StoreView) -> int:
    sizes = [queue.parts.size_bytes for queue in view.queues.values() if queue.parts.files]
    sizes = [size for size in sizes if size % UNIT_BYTES == 0]
    return max(set(sizes), key=sizes.count, default=DEFAULT_FILE_BYTES)


def _index_sizes(view: StoreView, slots: int | None, entries: int | None) -> tuple[int, int]:
    """Slots and entries of an index file: as told, as the files tell, or upstream's."""
    index_files, _ = view.open_index(slots=slots)
    known = [(file.slots, file.entry_capacity) for file in index_files if file.slots]
    if known:
        found_slots, found_entries = max(set(known), key=known.count)
        return slots or found_slots, entries or found_entries
    sizes = {file.size_bytes for file in index_files}
    if slots is None and sizes - {file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES)}:
        raise StoreError(
            "the index files do not tell how many slots they have",
            detail=f"files of {', '.join(f'{size} bytes' for size in sorted(sizes))}",
            hint="give the broker's maxHashSlotNum and maxIndexNum as --index-slots and "
            "--index-entries",
        )
    return slots or DEFAULT_SLOTS, entries or DEFAULT_ENTRIES


class _Survey:
    """The first pass: is the log sound, and where do topics start anew."""

    def __init__(self, view: StoreView, clock: Clock, end: int | None) -> None:
        self._view = view
        self._reporter = Reporter(view)
        self._checker = RecordChecker(self._reporter, clock)
        self._walk = LogWalk(view, on_damage=self._on_damage, end=end)
        self._expected: dict[QueueKey, int] = {}
        self._batch_topics = view.batch_topics()
        self._delays = [0, 0]
        self._bad: list[Fault] = []
        self._unconfirmed: dict[QueueKey, int] = {}
        self.restarts: dict[QueueKey, int] = {}
        self.records = 0

    def run(self, progress: Progress) -> list[Fault]:
        """Read the log; returns what is wrong with it."""
        view = self._view
        for problem in view.problems:
            self._reporter.problem(view.log_directory, problem)
        for record in self._walk.records():
            segment = self._walk.segment
            assert segment is not None
            start = record.physical_offset - segment.part.start
            self._checker.on_record(record, segment.view, start)
            self._check_place(record)
            self.records += 1
            if self.records % BURST_RECORDS == 0:
                progress(self._walk.position - view.min_offset)
        tail = self._walk.tail
        if tail is not None and not tail.is_zero and not view.crashed:
            self._report(tail.physical_offset, tail.fault.field, tail.fault.detail)
        self._check_delays()
        for key, offset in self._unconfirmed.items():
            detail = f"{key.topic}-{key.queue_id} seems to start anew, and nothing confirms it"
            self._report(offset, "queueOffset", detail)
        found = self._reporter.report.faults
        return self._bad + [
            fault
            for fault in found
            if fault.field in {"file", *_BLOCKING_FIELDS} and fault not in self._bad
        ]

    def _on_damage(self, damage: Damage) -> None:
        self._report(damage.start, damage.fault.field, damage.fault.detail)

    def _report(self, offset: int, name: str, detail: str) -> None:
        path = self._reporter.log_file(offset)
        self._bad.append(
            Fault(file=self._view.name_of(path), field=name, detail=detail, physical_offset=offset)
        )

    def _check_place(self, record: DispatchRequest) -> None:
        if not flags.takes_queue_offset(record.sys_flag) or record.topic in self._batch_topics:
            return
        key = QueueKey(record.topic, record.queue_id)
        expected = self._expected.get(key)
        self._expected[key] = record.queue_offset + 1
        if record.topic == SCHEDULE_TOPIC:
            self._compare_delay(key, record)
        if expected is None or record.queue_offset == expected:
            if record.queue_offset == 1 and key in self._unconfirmed:
                self.restarts[key] = self._unconfirmed.pop(key)
        elif record.queue_offset == 0 and self._may_restart(key, record):
            return
        else:
            detail = f"{record.queue_offset}, expected {expected}"
            self._report(record.physical_offset, "queueOffset", detail)

    def _may_restart(self, key: QueueKey, record: DispatchRequest) -> bool:
        """Whether an offset of 0 may mean that the topic was deleted and made anew.

        The entry that is there tells. Without one, the record after this one has to.
        """
        queue = self._view.queues.get(key)
        first = None if queue is None else queue.unit(0)
        if first is None or not first.is_written or first.is_filler:
            self._unconfirmed[key] = record.physical_offset
            return True
        if first.physical_offset < record.physical_offset:
            return False
        self.restarts[key] = record.physical_offset
        return True

    def _compare_delay(self, key: QueueKey, record: DispatchRequest) -> None:
        """Count how often the due time agrees with the entry that is there."""
        queue = self._view.queues.get(key)
        unit = None if queue is None else queue.unit(record.queue_offset)
        if unit is not None and unit.physical_offset == record.physical_offset:
            self._delays[unit.tags_code == record.tags_code] += unit.tags_code > 0

    def _check_delays(self) -> None:
        differing, agreeing = self._delays
        if differing > agreeing:
            raise StoreError(
                "the broker seems to use other delay levels",
                detail=f"{differing} of {differing + agreeing} delayed messages are due at "
                "another time than these levels give",
                hint="give the broker's messageDelayLevel as --delay-levels",
            )


class _Builder:
    """The second pass: queues and index into a directory."""

    def __init__(self, view: StoreView, plan: RebuildPlan, clock: Clock, target: Path) -> None:
        self._view = view
        self._target = target
        self._batch_topics = view.batch_topics()
        config = MessageStoreConfig(consume_queue_file_bytes=plan.consume_queue_file_bytes)
        view.files.make_dirs(target / CONSUME_QUEUE)
        view.files.make_dirs(target / INDEX)
        self._queues = ConsumeQueueStore(view.files, target, config)
        self._index = IndexService(
            view.files,
            target / INDEX,
            slots=plan.index_slots,
            entries=plan.index_entries,
            clock=clock,
        )

    def run(
        self, survey: _Survey, end: int | None, result: RebuildResult, progress: Progress
    ) -> None:
        """Build everything, until it is on disk."""
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
            result.carried_queues = self._carry_over()
        finally:
            self._queues.close()
            self._index.close()

    def _requests(
        self, record: DispatchRequest, restarts: dict[QueueKey, int]
    ) -> Iterator[DispatchRequest]:
        """What the queues get of a record: its own entry, and those of light queues."""
        start = restarts.get(QueueKey(record.topic, record.queue_id), 0)
        if record.physical_offset >= start and record.topic not in self._batch_topics:
            yield record
        for key, queue_offset in light_places(record):
            yield record._replace(topic=key.topic, queue_id=key.queue_id, queue_offset=queue_offset)

    def _carry_over(self) -> int:
        """Copy queues that had messages and have none in the log: their next offset counts."""
        count = 0
        for key, queue in self._view.queues.items():
            last = queue.unit(queue.written_end() - 1)
            is_expired = (
                last is not None
                and not last.is_filler
                and last.physical_offset < self._view.min_offset
            )
            if is_expired and self._queues.find(key.topic, key.queue_id) is None:
                self._copy(key, queue)
                count += 1
        return count

    def _copy(self, key: QueueKey, queue: QueueView) -> None:
        files = self._view.files
        directory = files.inside(self._target / CONSUME_QUEUE, key.topic, str(key.queue_id))
        files.make_dirs(directory)
        for part in queue.parts.files:
            source = files.open(part.path)
            target = files.open(files.inside(directory, part.path.name), write=True, create=True)
            try:
                files.truncate(target, part.size_bytes)
                for position in range(0, part.size_bytes, COPY_BYTES):
                    data = files.read_at(source, COPY_BYTES, position)
                    if data.strip(b"\0"):
                        files.write_at(target, data, position)
                files.data_sync(target)
            finally:
                files.close(source)
                files.close(target)
        files.sync_dir(directory)


def _pass_over(_damage: Damage) -> None:
    """The survey has told of it."""


def rebuild(
    view: StoreView, plan: RebuildPlan, clock: Clock, *, progress: Progress = no_progress
) -> RebuildResult:
    """Carry out a plan.

    Args:
        view: The store, open.
        plan: From :func:`plan_rebuild`.
        clock: Names index files.
        progress: Told now and then how many bytes are done, of twice the length of the log.

    Raises:
        StoreLocked: In place, while somebody has the store open; nothing is changed.
        StoreDamaged: In place, if the log has faults; nothing is changed.
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
        return _build(view, plan, clock, target, end, progress)
    except BaseException:
        for part in (CONSUME_QUEUE, INDEX):
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
        result = _build(view, plan, clock, temporary, None, progress)
        failpoint("rebuild.built")
        for part in (CONSUME_QUEUE, INDEX):
            _swap(files, temporary / part, root / part)
            failpoint(f"rebuild.swapped.{part}")
    finally:
        remove_tree(files, temporary)
        files.sync_dir(root)
    return result


def _build(  # noqa: PLR0917 - the parts of one rebuild
    view: StoreView,
    plan: RebuildPlan,
    clock: Clock,
    target: Path,
    end: int | None,
    progress: Progress,
) -> RebuildResult:
    survey = _Survey(view, clock, end)
    faults = survey.run(progress)
    if faults and plan.in_place:
        listed = "; ".join(f"{f.file} {f.where}: {f.field} {f.detail}" for f in faults[:3])
        raise StoreDamaged(
            f"the log has {len(faults)} faults, so nothing was rebuilt",
            detail=listed,
            hint="run 'roquet store verify' for all of them; repair the log from a replica, or "
            "build into another directory with --into",
        )
    result = RebuildResult(plan=plan, faults=faults)
    _Builder(view, plan, clock, target).run(survey, end, result, progress)
    return result


def _swap(files: Files, new: Path, old: Path) -> None:
    """Put a directory in its place; the old one, if any, goes where the new one was."""
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
    """Remove a directory and all below it; one that is not there is no error."""
    if not files.is_dir(path):
        files.unlink(path)
        return
    for name in files.list_dir(path):
        remove_tree(files, path / name)
    files.remove_dir(path)
