"""Rules for the headers, slots and entries of index files.

The rules do not depend on how a file is read: ``roquet store verify`` reads entries one by one
along with the log; Spark's tasks read a million at a time and check the suspicious ones singly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from roquet.format.commit_log import DispatchRequest
from roquet.format.derived import QueueKey
from roquet.format.index_file import IndexEntry, IndexHeader, seconds_since
from roquet.storefiles.faults import (
    INDEX_CHAIN,
    INDEX_HEADER,
    INDEX_MISSING,
    INDEX_WRONG,
    StoreFault,
)
from roquet.storefiles.index_files import IndexFileView

_FIELDS = {
    "keyHash": "key_hash",
    "physicalOffset": "physical_offset",
    "seconds": "seconds",
    "previous": "previous",
}


class IndexFileEnd(NamedTuple):
    """The first or the last entry of a file: its number, and the offset and time of its record."""

    number: int
    physical_offset: int
    time_ms: int | None


class WrongSlot(NamedTuple):
    """A slot that does not point to the newest entry of its chain."""

    slot: int
    stated: int
    expected: int


def shape_fault(index_file: IndexFileView) -> StoreFault | None:
    """Why a file cannot be read completely; without a slot count, none of it can be."""
    count = index_file.header.index_count
    detail = None
    if index_file.slots:
        if count > index_file.entry_capacity:
            detail = f"{count}, but there is room for {index_file.entry_capacity}"
    elif count > 1:
        detail = "entries and slots agree for no number of slots"
    elif not index_file.is_untouched():
        detail = f"{count}, but the file is not empty"
    return None if detail is None else header_fault(index_file.path, "indexCount", detail)


def header_fault(path: Path, field: str, detail: str) -> StoreFault:
    """A fault of a header."""
    return StoreFault(INDEX_HEADER, path, field, detail)


def count_written(index_file: IndexFileView) -> tuple[int, StoreFault | None]:
    """How many entries were written, and a fault if the header counts more."""
    empty = index_file.first_empty()
    if not empty:
        return index_file.count, None
    detail = f"{index_file.header.index_count}, but entry {empty} is empty"
    return empty - 1, header_fault(index_file.path, "indexCount", detail)


def end_faults(
    path: Path, header: IndexHeader, *, first: IndexFileEnd, last: IndexFileEnd
) -> Iterator[StoreFault]:
    """Compare a header with the first and last entry; an unknown time is not compared."""
    for side, end, offset, time_ms in (
        ("begin", first, header.begin_physical_offset, header.begin_timestamp_ms),
        ("end", last, header.end_physical_offset, header.end_timestamp_ms),
    ):
        for name, stated, actual in (
            (f"{side}PhyOffset", offset, end.physical_offset),
            (f"{side}Timestamp", time_ms, end.time_ms),
        ):
            if end.number and actual is not None and stated != actual:
                detail = f"the header says {stated}, the record of entry {end.number} {actual}"
                yield StoreFault(INDEX_HEADER, path, name, detail, end.physical_offset)


def slot_faults(
    path: Path, header: IndexHeader, wrong: Iterable[WrongSlot], *, count: int, capacity: int
) -> Iterator[StoreFault]:
    """Judge slots that point elsewhere; beyond the last entry, the header's count is too low.

    Args:
        path: The file.
        header: Its header.
        wrong: The slots.
        count: Number of its entries.
        capacity: How many entries fit.
    """
    beyond = 0
    for slot, stated, expected in wrong:
        if count < stated < capacity:
            beyond = max(beyond, stated)
        else:
            detail = f"slot {slot} says {stated}, expected {expected}"
            yield StoreFault(INDEX_CHAIN, path, "slot", detail)
    if beyond:
        detail = f"{header.index_count}, but slots point to entry {beyond}"
        yield header_fault(path, "indexCount", detail)


def slot_count_fault(path: Path, header: IndexHeader, used: int, count: int) -> StoreFault | None:
    """Check the header's count of slots in use; brokers before 4.9 counted entries there."""
    if header.hash_slot_count in {used, count}:
        return None
    detail = f"the header says {header.hash_slot_count}, {used} are in use"
    return header_fault(path, "hashSlotCount", detail)


def entry_fault(  # noqa: PLR0917 - one parameter a part of the sentence
    path: Path,
    number: int,
    entry: IndexEntry,
    field: str,
    detail: str,
    record: DispatchRequest | None = None,
) -> StoreFault:
    """A fault of an entry, with the record it points to, if known."""
    stated = getattr(entry, _FIELDS[field])
    return StoreFault(
        INDEX_CHAIN if field == "previous" else INDEX_WRONG,
        path,
        field,
        f"entry {number} says {stated}: {detail}",
        entry.physical_offset,
        None if record is None else QueueKey(record.topic, record.queue_id),
        None if record is None else record.queue_offset,
        number,
    )


def stray_fault(
    path: Path, number: int, entry: IndexEntry, log_end: int | None = None
) -> StoreFault:
    """An entry that points to no record; with ``log_end``, because the log is not that long."""
    detail = "no record starts there" if log_end is None else f"the log ends at {log_end}"
    return entry_fault(path, number, entry, "physicalOffset", detail)


def wrong_key_fault(
    path: Path, number: int, entry: IndexEntry, record: DispatchRequest | None = None
) -> StoreFault:
    """An entry that points to a record with other keys."""
    return entry_fault(path, number, entry, "keyHash", "belongs to no key of the record", record)


def missing_fault(
    physical_offset: int, keys: int, record: DispatchRequest | None = None
) -> StoreFault:
    """A record some of whose keys are not in the index."""
    return StoreFault(
        INDEX_MISSING,
        None,
        "keys",
        f"{keys} of its keys are in no index file",
        physical_offset,
        None if record is None else QueueKey(record.topic, record.queue_id),
        None if record is None else record.queue_offset,
    )


def seconds_fault(
    path: Path,
    number: int,
    entry: IndexEntry,
    expected: Collection[int],
    record: DispatchRequest | None = None,
) -> StoreFault | None:
    """An entry with another time than its record's; the right one is not always known."""
    if not expected or entry.seconds in expected:
        return None
    return entry_fault(path, number, entry, "seconds", f"expected {max(expected)}", record)


def later_seconds(header: IndexHeader, first_ms: int | None, time_ms: int) -> set[int]:
    """Possible times of an entry after the first; header and first record should agree."""
    begins_ms = (header.begin_timestamp_ms, first_ms)
    return {seconds_since(begin_ms, time_ms) for begin_ms in begins_ms if begin_ms is not None}


def first_seconds(before: IndexHeader | None, time_ms: int, log_start: int) -> tuple[int, ...]:
    """Possible times of a file's first entry: a new file counts from the end of the one before it.

    Nothing is known if that file has expired.
    """
    if before is not None:
        return (0, seconds_since(before.end_timestamp_ms, time_ms))
    return (0,) if log_start == 0 else ()
