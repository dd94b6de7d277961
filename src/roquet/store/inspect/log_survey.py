"""The first pass of a rebuild: checks the log, and finds where topics were re-created.

Owns which faults of a log stand in the way of a rebuild.
"""

from __future__ import annotations

from roquet.errors import StoreError
from roquet.format.batch_consume_queue import batch_size_of
from roquet.format.commit_log import DispatchRequest
from roquet.format.derived import QueueKey
from roquet.model import sys_flag as flags
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.runtime.clock import Clock
from roquet.store.inspect.report import Fault, Reporter
from roquet.store.inspect.verify import Progress
from roquet.storefiles.manifest_checks import LogSpan
from roquet.storefiles.record_checks import RecordChecker
from roquet.storefiles.view import StoreView
from roquet.storefiles.walk import BadRecord, LogWalk

PROGRESS_RECORDS = 4096
_BLOCKING_FIELDS = frozenset({"topic", "sysFlag"})


class LogSurvey:
    """One pass over a log.

    Args:
        view: The store.
        clock: Later store times are faults.
        end: Physical offset where the log ends; ``None`` after its last record.
        accepts_loss: Whether the log may end in a torn record although it was closed.

    Attributes:
        restarts: Where the records of re-created topics begin, by queue.
        span: How far the log reaches.
    """

    def __init__(
        self, view: StoreView, clock: Clock, end: int | None, *, accepts_loss: bool
    ) -> None:
        self._view = view
        self._may_be_torn = view.crashed or accepts_loss
        self._reporter = Reporter(view)
        self._checker = RecordChecker(self._reporter, clock.now_ms)
        self._walk = LogWalk(view, on_damage=self._on_damage, end=end)
        self._expected: dict[QueueKey, int] = {}
        self._delays = [0, 0]
        self._bad: list[Fault] = []
        self._unconfirmed: dict[QueueKey, int] = {}
        self.restarts: dict[QueueKey, int] = {}
        self.records = 0
        self.span = LogSpan(view.min_offset, 0, has_records=False)

    def run(self, progress: Progress) -> list[Fault]:
        """Read the log; returns what is wrong with it."""
        view = self._view
        for problem in view.problems:
            self._reporter.problem(view.log_directory, problem)
        for found in self._walk.found():
            record = found.record
            self._checker.on_record(found)
            self._check_place(record)
            self.span = self.span.after(record)
            self.records += 1
            if self.records % PROGRESS_RECORDS == 0:
                progress(self._walk.position - view.min_offset)
        self.span = self.span.ended(self._walk, view)
        tail = self._walk.tail
        if tail is not None and not tail.is_zero and not self._may_be_torn:
            self._report(tail.physical_offset, tail.fault.field, tail.fault.detail)
        self._check_delays()
        for key, offset in self._unconfirmed.items():
            detail = f"{key.topic}-{key.queue_id} seems to restart, but nothing confirms it"
            self._report(offset, "queueOffset", detail)
        return self._bad + [
            fault
            for fault in self._reporter.report.faults
            if fault.field in {"file", *_BLOCKING_FIELDS} and fault not in self._bad
        ]

    def _on_damage(self, damage: BadRecord) -> None:
        self._report(damage.start, damage.fault.field, damage.fault.detail)

    def _report(self, offset: int, name: str, detail: str) -> None:
        path = self._reporter.log_file(offset)
        self._bad.append(
            Fault(file=self._view.name_of(path), field=name, detail=detail, physical_offset=offset)
        )

    def _check_place(self, record: DispatchRequest) -> None:
        if not flags.takes_queue_offset(record.sys_flag):
            return
        key = QueueKey(record.topic, record.queue_id)
        expected = self._expected.get(key)
        self._expected[key] = record.queue_offset + batch_size_of(record)
        if record.topic == SCHEDULE_TOPIC:
            self._compare_delay(key, record)
        if expected is None or record.queue_offset == expected:
            if record.queue_offset > 0 and key in self._unconfirmed:
                self.restarts[key] = self._unconfirmed.pop(key)
        elif not (self._may_restart(key, record) or self._is_filled(key, expected, record)):
            detail = f"{record.queue_offset}, expected {expected}"
            self._report(record.physical_offset, "queueOffset", detail)

    def _is_filled(self, key: QueueKey, expected: int, record: DispatchRequest) -> bool:
        """Whether existing entries say that the records in between are lost."""
        if record.queue_offset < expected:
            return False
        queue = self._view.queues.get(key)
        return queue is not None and queue.is_filled(expected, record.queue_offset)

    def _may_restart(self, key: QueueKey, record: DispatchRequest) -> bool:
        """Whether an offset of 0 may mean that the topic was deleted and re-created.

        The existing entry decides; if there is none, the record after this one.
        """
        if record.queue_offset != 0:
            return False
        queue = self._view.queue_of(key)
        first = None if queue is None else queue.unit(0)
        if first is None or not first.is_written or first.is_filler:
            self._unconfirmed[key] = record.physical_offset
            return True
        if first.physical_offset < record.physical_offset:
            return False
        self.restarts[key] = record.physical_offset
        return True

    def _compare_delay(self, key: QueueKey, record: DispatchRequest) -> None:
        """Count how often the due time agrees with the existing entry."""
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
                "another time than these levels imply",
                hint="pass the broker's messageDelayLevel as --delay-levels",
            )
