"""The checks of single records, reported.

Owns which topics are known to be good; the checks are those of :mod:`roquet.format.record_checks`.
"""

from __future__ import annotations

from roquet.format.commit_log import DispatchRequest
from roquet.format.record_checks import StoreTimes, content_faults, topic_faults
from roquet.runtime.clock import Clock
from roquet.store.inspect.report import Reporter


class RecordChecker:
    """Checks each record of a walk in turn."""

    def __init__(self, reporter: Reporter, clock: Clock) -> None:
        self._reporter = reporter
        self._times = StoreTimes(clock.now_ms, self._tell_time)
        self._good_topics: set[str] = set()

    def on_record(self, record: DispatchRequest, data: memoryview, start: int) -> None:
        """Check a record, whose bytes start at ``start`` of ``data``."""
        self._times.on_record(record)
        if record.topic not in self._good_topics:
            self._check_topic(record)
        for fault in content_faults(record, data, start):
            self._reporter.record_fault(record, fault.field, fault.detail)

    def finish(self) -> None:
        """Report what was held back for the record after it."""
        self._times.finish()

    def _check_topic(self, record: DispatchRequest) -> None:
        faults = list(topic_faults(record))
        if not faults:
            self._good_topics.add(record.topic)
        for fault in faults:
            self._reporter.record_fault(record, fault.field, fault.detail)

    def _tell_time(self, record: DispatchRequest, detail: str) -> None:
        self._reporter.record_fault(record, "storeTimestamp", detail)
