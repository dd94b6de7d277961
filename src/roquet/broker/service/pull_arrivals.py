"""Matches the messages of a burst against the filters of held pulls.

Limits how much is examined: a burst that is too long, or whose entries cannot be read, matches
every filter. A pull that is woken needlessly finds that out when it reads again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from roquet.errors import StoreError
from roquet.format.consume_queue import UNIT, UNIT_BYTES
from roquet.format.consume_queue_ext import CqExtUnit, is_ext_address
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.reader import MessageFilter, QueueFilter, RecordFilter
from roquet.store.results import Bytes

__all__ = ["ArrivedMessages", "arrived"]

log = logging.getLogger(__name__)

_CHECKED_ENTRIES_MAX = 1_024
"""Entries of one burst whose tags are checked; a longer burst wakes all held pulls."""

_CODE_CHECKS_MAX = 16 * _CHECKED_ENTRIES_MAX
"""Limit on tag checks per burst, some milliseconds of them; the remaining pulls are woken."""

_JUDGED_READS_MAX = 4
"""Limit on expression checks per burst, in units of one pull's read; the remaining pulls are woken.
"""

_Entry = tuple[int, int, int, CqExtUnit | None]
"""A queue entry: physical offset, size, tags code, and its ext unit."""


class ArrivedMessages:
    """The messages of a burst in one queue; examined lazily.

    Args:
        queue: The queue.
        units: Its new entries.
        record_at: Returns a record by physical offset and size.
    """

    __slots__ = (
        "_checks_left",
        "_codes",
        "_entries",
        "_queue",
        "_reads_left",
        "_record_at",
        "_units",
    )

    def __init__(
        self, queue: ConsumeQueue, units: bytes, record_at: Callable[[int, int], Bytes | None]
    ) -> None:
        self._queue = queue
        self._units = units
        self._record_at = record_at
        self._codes: set[int] | None = None
        self._entries: list[_Entry] | None = None
        self._checks_left = _CODE_CHECKS_MAX
        self._reads_left = float(_JUDGED_READS_MAX)

    def has(self, wanted: MessageFilter) -> bool:
        """Whether a message matches, or may match and is too expensive to check."""
        try:
            if wanted.by_record is None:
                return wanted.by_queue is None or self._has_code(wanted.by_queue)
            return self._has_record(wanted, wanted.by_record)
        except Exception:
            # The pull itself will report the error; the burst continues.
            log.exception("a filter failed")
            return True

    def _has_code(self, by_queue: QueueFilter) -> bool:
        if self._codes is None:
            if self._queue.ext is None:
                self._codes = {tags_code for _, _, tags_code in UNIT.iter_unpack(self._units)}
            else:
                self._codes = {tags_code for _, _, tags_code, _ in self._all_entries()}
        if len(self._codes) > self._checks_left:
            return True
        self._checks_left -= len(self._codes)
        return any(is_ext_address(code) or by_queue(code, None) for code in self._codes)

    def _has_record(self, wanted: MessageFilter, by_record: RecordFilter) -> bool:
        entries = self._all_entries()
        reads = len(entries) / (wanted.entries_max or _CHECKED_ENTRIES_MAX)
        if reads > min(1, self._reads_left):
            return True
        self._reads_left -= reads
        by_queue = wanted.by_queue
        for physical_offset, size_bytes, tags_code, ext in entries:
            is_lost = ext is None and is_ext_address(tags_code)
            if by_queue is not None and not is_lost and not by_queue(tags_code, ext):
                continue
            record = self._record_at(physical_offset, size_bytes)
            if record is None or by_record(memoryview(record)):
                return True
        return False

    def _all_entries(self) -> list[_Entry]:
        """The entries, with the tags codes of their ext units where they have one."""
        if self._entries is None:
            self._entries = [
                self._entry(physical_offset, size_bytes, tags_code)
                for physical_offset, size_bytes, tags_code in UNIT.iter_unpack(self._units)
            ]
        return self._entries

    def _entry(self, physical_offset: int, size_bytes: int, tags_code: int) -> _Entry:
        if self._queue.ext is not None and is_ext_address(tags_code):
            unit = self._queue.ext.get(tags_code)
            if unit is not None:
                return physical_offset, size_bytes, unit.tags_code, unit
        return physical_offset, size_bytes, tags_code, None


def arrived(
    queue: ConsumeQueue, seen_offset: int, record_at: Callable[[int, int], Bytes | None]
) -> ArrivedMessages | None:
    """Return the entries from an offset on; ``None`` if they are unknown or too expensive.

    An error only wakes pulls needlessly: this is called at the end of a burst, and the sends of
    that burst must get their responses.
    """
    count = queue.max_queue_offset - seen_offset
    if not 0 < count <= _CHECKED_ENTRIES_MAX:
        return None
    try:
        units = queue.read_units(seen_offset, count)
    except StoreError as error:
        log.warning("waking all pulls of %s-%d: %s", queue.topic, queue.queue_id, error)
        return None
    if len(units) != count * UNIT_BYTES:
        return None
    return ArrivedMessages(queue, units, record_at)
