"""The log against the ConsumeQueues: each record has its entry, each entry its record.

Owns the comparison, done while the log is walked. Per queue it keeps only what is next and which
runs of entries were compared, so memory grows with the number of queues, not of messages.

What looks wrong and is not:

* An entry of a record older than the log has expired.
* When a topic is deleted and made anew its offsets start at 0 again, and the records of its former
  life have no entries.
* A Java broker that cut its log leaves old entries behind the end of a queue (``stale``).
* A broker that runs or crashed may have entries still to write (``lag``).
"""

from __future__ import annotations

from collections.abc import Iterator

from roquet.format.commit_log import Blank, DispatchRequest, RecordFault
from roquet.format.consume_queue import CqUnit
from roquet.format.consume_queue_ext import is_ext_address
from roquet.format.derived import QueueKey, light_places
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.store.inspect.queues import QueueView
from roquet.store.inspect.report import Reporter
from roquet.store.inspect.view import StoreView
from roquet.store.inspect.walk import Damage, Damages


class _Run:
    """Neighbouring queue offsets with one fate, and the records of its ends."""

    __slots__ = ("end", "first_physical", "last_physical", "start")

    def __init__(self, start: int, physical_offset: int) -> None:
        self.start = start
        self.end = start + 1
        self.first_physical = physical_offset
        self.last_physical = physical_offset


class _QueueState:
    """What is known of one queue so far."""

    __slots__ = ("alternative", "compared", "expected", "last_physical", "missing")

    def __init__(self) -> None:
        self.expected = -1
        self.alternative = -1
        self.last_physical = -1
        self.compared: list[_Run] = []
        self.missing: list[_Run] = []


class QueueChecker:
    """Compares each record of a walk with its entry, and at the end the entries left over."""

    def __init__(self, view: StoreView, reporter: Reporter, known_topics: set[str] | None) -> None:
        self._view = view
        self._reporter = reporter
        self._known_topics = known_topics
        self._queues = view.queues
        self._extensions = view.extensions()
        self._batch_topics = view.batch_topics()
        self._states: dict[QueueKey, _QueueState] = {}
        self._damages = Damages()

    def on_damage(self, damage: Damage) -> None:
        """Remember where records are lost, so that their entries are not blamed too."""
        self._damages.add(damage)

    def on_record(self, record: DispatchRequest) -> None:
        """Compare a record with its entry."""
        for light, queue_offset in light_places(record):
            self._compare(
                self._states.setdefault(light, _QueueState()), light, queue_offset, record
            )
        if not flags.takes_queue_offset(record.sys_flag):
            return
        key = QueueKey(record.topic, record.queue_id)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _QueueState()
        is_dense = self._check_density(state, key, record)
        state.last_physical = record.physical_offset
        if is_dense and record.topic not in self._batch_topics:
            self._compare(state, key, record.queue_offset, record)

    def _check_density(self, state: _QueueState, key: QueueKey, record: DispatchRequest) -> bool:
        """Whether the record's queue offset follows the one before it in its queue."""
        queue_offset, expected = record.queue_offset, state.expected
        step = 1
        if record.sys_flag & flags.INNER_BATCH:
            count = record.properties.get(prop.INNER_NUM, "1")
            step = int(count) if count.isascii() and count.isdecimal() else 1
        if expected < 0 or queue_offset in {expected, state.alternative}:
            state.expected, state.alternative = queue_offset + step, -1
            return True
        if self._is_restart(key, record) or self._is_explained(state, key, record):
            state.expected, state.alternative = queue_offset + step, -1
            return True
        self._reporter.record_fault(record, "queueOffset", f"{queue_offset}, expected {expected}")
        state.expected, state.alternative = expected + step, queue_offset + step
        return False

    def _is_restart(self, key: QueueKey, record: DispatchRequest) -> bool:
        """Whether the topic was deleted and made anew, so that its offsets start again."""
        if record.queue_offset != 0:
            return False
        queue = self._queues.get(key)
        if queue is None:
            return self._is_deleted(key.topic)
        first = queue.unit(0)
        is_later = (
            first is not None
            and first.is_written
            and not first.is_filler
            and first.physical_offset >= record.physical_offset
        )
        if is_later:
            detail = f"{key.topic}-{key.queue_id} was deleted and made anew"
            self._reporter.note("restart", detail, physical_offset=record.physical_offset)
        return is_later

    def _is_explained(self, state: _QueueState, key: QueueKey, record: DispatchRequest) -> bool:
        """Whether missing offsets belong to bad records, which are reported as such."""
        if record.queue_offset < state.expected:
            return False
        low, high = state.last_physical, record.physical_offset
        if self._damages.any_between(low, high):
            return True
        queue = self._queues.get(key)
        unit = None if queue is None else queue.unit(state.expected)
        return (
            unit is not None
            and unit.is_written
            and not unit.is_filler
            and low < unit.physical_offset < high
        )

    def _is_deleted(self, topic: str) -> bool:
        """Whether a topic is known to exist no more."""
        return (
            self._known_topics is not None
            and topic not in self._known_topics
            and not any(key.topic == topic for key in self._queues)
        )

    def _compare(
        self, state: _QueueState, key: QueueKey, queue_offset: int, record: DispatchRequest
    ) -> None:
        queue = self._queues.get(key)
        unit = None if queue is None else queue.unit(queue_offset)
        if queue is None or unit is None or not unit.is_written:
            if queue is None or not self._was_written_meanwhile(queue, queue_offset):
                _extend(state.missing, queue_offset, record.physical_offset)
                return
            unit = queue.unit(queue_offset)
            assert unit is not None
        self._reporter.report.counts.queue_entries += 1
        if unit.physical_offset != record.physical_offset or unit.is_filler:
            if self._is_superseded(unit, key, queue_offset, record):
                return
            detail = f"entry {queue_offset} says {unit.physical_offset}"
            if unit.is_filler:
                detail = f"entry {queue_offset} is filler"
            self._entry_fault(queue, key, queue_offset, record, "physicalOffset", detail)
        elif unit.size_bytes != record.size_bytes:
            detail = f"entry {queue_offset} says {unit.size_bytes}, the record {record.size_bytes}"
            self._entry_fault(queue, key, queue_offset, record, "size", detail)
        elif unit.tags_code != record.tags_code:
            self._check_tags_code(queue, key, queue_offset, unit, record)
        _extend(state.compared, queue_offset, record.physical_offset)

    def _was_written_meanwhile(self, queue: QueueView, queue_offset: int) -> bool:
        if not self._view.is_running:
            return False
        unit = queue.reread(queue_offset)
        return unit is not None and unit.is_written

    def _is_superseded(
        self, unit: CqUnit, key: QueueKey, queue_offset: int, record: DispatchRequest
    ) -> bool:
        """Whether the entry belongs to a later life of the topic."""
        if unit.is_filler or unit.physical_offset <= record.physical_offset:
            return False
        found = self._view.check_at(unit.physical_offset)
        return (
            isinstance(found, DispatchRequest)
            and QueueKey(found.topic, found.queue_id) == key
            and found.queue_offset == queue_offset
        )

    def _check_tags_code(
        self,
        queue: QueueView,
        key: QueueKey,
        queue_offset: int,
        unit: CqUnit,
        record: DispatchRequest,
    ) -> None:
        """The third field: the record's tags code, or the address of a unit that has it."""
        if not is_ext_address(unit.tags_code):
            detail = f"entry {queue_offset} says {unit.tags_code}, the record {record.tags_code}"
            self._entry_fault(queue, key, queue_offset, record, "tagsCode", detail)
            return
        extension = self._extensions.get(key)
        found = None if extension is None else extension.unit(unit.tags_code)
        if extension is None or found is None:
            detail = f"entry {queue_offset} points at {unit.tags_code}, where no unit is"
            self._entry_fault(queue, key, queue_offset, record, "tagsCode", detail)
            return
        path = extension.path_of(unit.tags_code)
        for name, stated, actual in (
            ("tagsCode", found.tags_code, record.tags_code),
            ("storeTimestamp", found.store_timestamp_ms, record.store_timestamp_ms),
        ):
            if stated != actual:
                self._reporter.fault(
                    path,
                    name,
                    f"the unit of entry {queue_offset} says {stated}, the record {actual}",
                    physical_offset=record.physical_offset,
                    key=key,
                    queue_offset=queue_offset,
                )

    def _entry_fault(  # noqa: PLR0917 - one parameter a part of the sentence
        self,
        queue: QueueView,
        key: QueueKey,
        queue_offset: int,
        record: DispatchRequest,
        name: str,
        detail: str,
    ) -> None:
        self._reporter.fault(
            queue.path_of(queue_offset),
            name,
            detail,
            physical_offset=record.physical_offset,
            key=key,
            queue_offset=queue_offset,
        )

    # -- what is left over ------------------------------------------------------------------

    def finish(self, log_end: int) -> None:
        """Judge records without entries and entries without records."""
        counts = self._reporter.report.counts
        counts.queues = len(self._queues)
        if not self._view.has_queues and self._states:
            path = self._view.root / "consumequeue"
            self._reporter.fault(path, "file", "no ConsumeQueue is there at all")
            return
        for key, state in self._states.items():
            for run in state.missing:
                self._judge_missing(key, run)
        for key, queue in self._queues.items():
            for problem in queue.parts.problems:
                self._reporter.problem(queue.directory, problem)
            self._judge_left_over(key, queue, log_end)
            queue.forget()

    def _judge_missing(self, key: QueueKey, run: _Run) -> None:
        queue = self._queues.get(key)
        count = run.end - run.start
        if queue is None and self._is_deleted(key.topic):
            detail = f"topic {key.topic} was deleted; {count} of its records are still in the log"
            self._reporter.note("deleted", detail, physical_offset=run.first_physical)
            return
        first = None if queue is None else queue.unit(0)
        if first is not None and not first.is_filler and first.physical_offset > run.last_physical:
            return  # records of a former life of the topic
        may_lag = self._view.is_running or self._view.crashed
        if may_lag and (queue is None or queue.written_end() <= run.start):
            detail = f"{key.topic}-{key.queue_id}: {count} entries are still to be written"
            self._reporter.note("lag", detail, physical_offset=run.first_physical)
            return
        detail = f"entry {run.start} is missing"
        if count > 1:
            detail = f"entries {run.start} to {run.end - 1} are missing"
        path = self._view.root / "consumequeue" if queue is None else queue.path_of(run.start)
        self._reporter.fault(
            path,
            "physicalOffset",
            detail,
            physical_offset=run.first_physical,
            key=key,
            queue_offset=run.start,
        )

    def _judge_left_over(self, key: QueueKey, queue: QueueView, log_end: int) -> None:
        """Look at every entry that no record was compared with."""
        state = self._states.get(key)
        end = queue.nonzero_end()
        stale = 0
        missing = [] if state is None else state.missing
        for queue_offset, unit in _left_over(queue, state, end):
            if unit.is_filler or any(run.start <= queue_offset < run.end for run in missing):
                continue
            if not unit.is_written and self._was_written_meanwhile(queue, queue_offset):
                continue
            if unit.is_written and unit.physical_offset < self._view.min_offset:
                self._reporter.report.counts.expired_entries += 1
            elif unit.is_written and unit.physical_offset >= log_end:
                stale += 1
            elif not self._is_damaged(unit):
                self._blame_entry(key, queue, queue_offset, unit)
        if stale and not self._view.is_running:
            detail = f"{key.topic}-{key.queue_id}: {stale} entries point behind the end of the log"
            self._reporter.note("stale", detail)

    def _is_damaged(self, unit: CqUnit) -> bool:
        """Whether an entry points at a record that was reported as bad."""
        return unit.is_written and self._damages.covers(unit.physical_offset)

    def _is_at_home(self, record: DispatchRequest) -> bool:
        """Whether a record has an entry where it says itself that it stands."""
        if not flags.takes_queue_offset(record.sys_flag):
            return False
        queue = self._queues.get(QueueKey(record.topic, record.queue_id))
        unit = None if queue is None else queue.unit(record.queue_offset)
        return unit is not None and unit.physical_offset == record.physical_offset

    def _blame_entry(
        self, key: QueueKey, queue: QueueView, queue_offset: int, unit: CqUnit
    ) -> None:
        """Say why no record belongs to an entry."""
        path = queue.path_of(queue_offset)
        if not unit.is_written:
            detail = f"entry {queue_offset} is empty, later ones are not"
            self._reporter.fault(path, "size", detail, key=key, queue_offset=queue_offset)
            return
        found = self._view.check_at(unit.physical_offset)
        reason = None
        if isinstance(found, Blank | RecordFault):
            reason = "where no record starts"
        elif self._is_at_home(found):
            reason = f"a record of {found.topic}-{found.queue_id} offset {found.queue_offset}"
        if isinstance(found, Blank | RecordFault) or reason is not None:
            self._reporter.fault(
                path,
                "physicalOffset",
                f"entry {queue_offset} says {unit.physical_offset}, {reason}",
                physical_offset=unit.physical_offset,
                key=key,
                queue_offset=queue_offset,
            )
            return
        for name, stated, expected in (
            ("topic", found.topic, key.topic),
            ("queueId", found.queue_id, key.queue_id),
            ("queueOffset", found.queue_offset, queue_offset),
        ):
            if stated != expected:
                detail = (
                    f"{stated}, but it stands in ConsumeQueue "
                    f"{key.topic}-{key.queue_id} at {queue_offset}"
                )
                self._reporter.record_fault(found, name, detail)
                return
        if not flags.takes_queue_offset(found.sys_flag):
            detail = f"0x{found.sys_flag:X} takes no place in a queue, but has one"
            self._reporter.record_fault(found, "sysFlag", detail)


def _extend(runs: list[_Run], queue_offset: int, physical_offset: int) -> None:
    """Add an offset to the last run, or start a new one."""
    if runs and runs[-1].end == queue_offset:
        runs[-1].end += 1
        runs[-1].last_physical = physical_offset
    else:
        runs.append(_Run(queue_offset, physical_offset))


def _left_over(
    queue: QueueView, state: _QueueState | None, end: int
) -> Iterator[tuple[int, CqUnit]]:
    """Entries up to ``end`` that no run of compared ones covers."""
    position = queue.first_offset
    runs = [] if state is None else sorted(state.compared, key=lambda run: run.start)
    for run in runs:
        yield from queue.units(position, run.start)
        position = max(position, run.end)
    yield from queue.units(position, end)
