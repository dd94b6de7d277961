"""Reports faults of single records.

Remembers which topics are valid; the checks are those of :mod:`roquet.format.record_checks`.
"""

from __future__ import annotations

from collections.abc import Callable

from roquet.format.commit_log import DispatchRequest
from roquet.format.record_checks import StoreTimes, content_faults, stored_topic_fault
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
        if not self.is_good_topic(record.topic):
            detail = f"{record.topic!r}: {stored_topic_fault(record.topic)}"
            self._tell(record, "topic", detail)
        for fault in content_faults(*found):
            self._tell(record, fault.field, fault.detail)

    def is_good_topic(self, topic: str) -> bool:
        """Whether a topic is valid."""
        if topic not in self._good_topics and stored_topic_fault(topic) is None:
            self._good_topics.add(topic)
        return topic in self._good_topics

    def allows_times(self, first_ms: int, last_ms: int) -> bool:
        """Whether nothing is wrong with the store times of the next records.

        If so, only the last two of them have to be checked. The arguments are those of
        :meth:`~roquet.format.record_checks.StoreTimes.allows`.
        """
        return self._times.allows(first_ms, last_ms)

    def finish(self) -> None:
        """Report the faults that waited for a following record."""
        self._times.finish()

    def _tell(self, record: DispatchRequest, name: str, detail: str) -> None:
        self._listener.add(record_fault(BAD_CONTENT, record, name, detail))

    def _tell_time(self, record: DispatchRequest, detail: str) -> None:
        self._listener.add(record_fault(BAD_TIME, record, "storeTimestamp", detail))
