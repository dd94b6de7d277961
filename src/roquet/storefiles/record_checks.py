"""Reports faults of single records.

Remembers which topics are valid; the checks are those of :mod:`roquet.format.record_checks`.
"""

from __future__ import annotations

from collections.abc import Callable

from roquet.format.commit_log import DispatchRequest
from roquet.format.record_checks import StoreTimes, content_faults, topic_faults
from roquet.storefiles.faults import BAD_CONTENT, BAD_TIME, Listener, record_fault
from roquet.storefiles.records import FoundRecord


class RecordChecker:
    """Checks each record of a walk in turn.

    Args:
        listener: Receives the faults.
        now_ms: Returns the current time; no store time may be later.
    """

    def __init__(self, listener: Listener, now_ms: Callable[[], int]) -> None:
        self._listener = listener
        self._times = StoreTimes(now_ms, self._tell_time)
        self._good_topics: set[str] = set()

    def on_record(self, found: FoundRecord) -> None:
        """Check a record."""
        record = found.record
        self._times.on_record(record)
        if record.topic not in self._good_topics:
            self._check_topic(record)
        for fault in content_faults(*found):
            self._tell(record, fault.field, fault.detail)

    def finish(self) -> None:
        """Report the faults that waited for a following record."""
        self._times.finish()

    def _check_topic(self, record: DispatchRequest) -> None:
        faults = list(topic_faults(record))
        if not faults:
            self._good_topics.add(record.topic)
        for fault in faults:
            self._tell(record, fault.field, fault.detail)

    def _tell(self, record: DispatchRequest, name: str, detail: str) -> None:
        self._listener.add(record_fault(BAD_CONTENT, record, name, detail))

    def _tell_time(self, record: DispatchRequest, detail: str) -> None:
        self._listener.add(record_fault(BAD_TIME, record, "storeTimestamp", detail))
