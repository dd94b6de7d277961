"""Finds messages by their keys or ids through the index, if that pays and changes nothing.

Owns that choice, and what is read instead of the whole range: the records that the index names, and
every part of the log that it says nothing about. The index must be complete to be used:

- The topics must be known, for an index has hashes of ``topic#key`` only, and every record must
  have been dispatched: :func:`~roquet.spark.log.queue_choice.accounts_for` sees to both.
- Where consecutive entries are more than ``GAP_BYTES`` apart, the log in between is read: the index
  was off, or messages have no keys. So is the log between files, of which one may be missing, and
  before the first and after the last entry.

All entries are read, in order, and compared by their hashes; chains and slots are not relied upon.
That is a small part of the log, in pieces of bounded size. Entries that are damaged are not found:
``audit`` is what checks an index.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from roquet.format.consume_queue import UNIT_BYTES
from roquet.format.index_file import HEADER_BYTES, IndexHeader
from roquet.model import properties as prop
from roquet.model.java_string import index_key_hash
from roquet.runtime.files import Files
from roquet.spark.log.index_tables import (
    ENTRY_TYPE,
    IndexFileRef,
    index_places,
    read_entries,
)
from roquet.spark.log.queue_choice import PART_MAX, RANDOM_READ_BYTES, accounts_for
from roquet.spark.log.queue_reading import PlacesRange
from roquet.spark.log.selection import Selection
from roquet.spark.log.splits import is_record
from roquet.spark.log.store_files import LogFiles
from roquet.storefiles.layout import INDEX
from roquet.storefiles.window import Window

__all__ = ["IndexedParts", "indexed_parts"]

GAP_BYTES = 64 << 10
"""How far apart entries may be in the log."""

HASHES_MAX = 4096
"""The maximum number of keys to look for, counting each topic."""

PLACES_PER_TASK = 4096

_PIECE_ENTRIES = 1 << 19
_UNIQUE_ID_BYTES = (32, 56)
_OFFSET_DIGITS = 16

Array = npt.NDArray[Any]


class IndexedParts(NamedTuple):
    """What to read instead of a range of the log."""

    places: list[PlacesRange]
    gaps: list[tuple[int, int]]
    """Ranges about which the index says nothing; each starts and ends with a record."""


def indexed_parts(
    log: LogFiles, selection: Selection, start: int, stop: int, *, is_forced: bool = False
) -> IndexedParts | None:
    """Return what to read of a range for the wanted keys.

    Args:
        log: The log.
        selection: Has the keys or ids.
        start: Physical offset of the first record.
        stop: Physical offset of the end of the last record that was dispatched.
        is_forced: Whether to use the index even if reading the whole range is faster.

    Returns:
        ``None`` if the whole range should be read.
    """
    words = _wanted_words(selection)
    if not words or not log.has_whole_queues or log.root is None or start >= stop:
        return None
    takes = selection.topic_test()
    topics = {key.topic for key in log.queues if takes is None or takes(key.topic)}
    if len(topics) * len(words) > HASHES_MAX:
        return None
    files, _ = index_places(log.files, (log.root / INDEX).resolve())
    used = list(_used(log.files, files))
    if not all(place.slots for place, _ in used):
        return None
    entries = sum(count for _, count in used)
    entry_bytes = ENTRY_TYPE.itemsize + UNIT_BYTES
    limit_bytes = sys.maxsize if is_forced else int((stop - start) * PART_MAX)
    if not entries or entries * entry_bytes > limit_bytes or not accounts_for(log, start, stop):
        return None
    hashes = np.array(
        sorted({index_key_hash(topic, word) for topic in topics for word in words}),
        dtype=np.int32,
    )
    searched = _search(log.files, used, hashes, start, stop)
    if searched is None:
        return None
    found, gaps = searched
    found |= {each for each in _own_offsets(selection) if start <= each < stop}
    cost_bytes = entries * entry_bytes + len(found) * RANDOM_READ_BYTES
    cost_bytes += sum(high - low for low, high in gaps)
    if cost_bytes > limit_bytes or not _are_cuts(log, gaps, start, stop):
        return None
    kept = sorted(each for each in found if not any(low <= each < high for low, high in gaps))
    return IndexedParts(list(_by_segment(log, kept, stop)), gaps)


def _wanted_words(selection: Selection) -> frozenset[str]:
    """Return index keys of which every wanted message has one; empty if there are none."""
    if selection.keys:
        return selection.keys
    keys, ids = selection.texts.get("keys"), selection.texts.get("msgId")
    if ids is not None and ids.values is not None:
        return frozenset(each.decode() for each in ids.values)
    if keys is None or keys.values is None:
        return frozenset()
    words = [each.decode().split(prop.KEY_SEPARATOR) for each in keys.values]
    first = [next((word for word in each if word), "") for each in words]
    return frozenset(first) if all(first) else frozenset()


def _own_offsets(selection: Selection) -> Iterator[int]:
    """Yield the physical offsets that wanted ids state: ids of a broker are not in the index."""
    ids = selection.texts.get("msgId")
    for each in (ids.values if ids is not None else None) or ():
        if len(each) in _UNIQUE_ID_BYTES:
            try:
                yield int(each[-_OFFSET_DIGITS:], 16)
            except ValueError:
                continue


def _used(files: Files, places: Iterable[IndexFileRef]) -> Iterator[tuple[IndexFileRef, int]]:
    """Yield index files with the number of their entries."""
    for place in places:
        fd = files.open(Path(place.path))
        try:
            header = IndexHeader.unpack(files.read_at(fd, HEADER_BYTES, 0))
        finally:
            files.close(fd)
        yield place, max(min(header.index_count, place.entry_capacity) - 1, 0)


def _search(
    files: Files, used: Iterable[tuple[IndexFileRef, int]], hashes: Array, start: int, stop: int
) -> tuple[set[int], list[tuple[int, int]]] | None:
    """Return the offsets of entries with one of the hashes, and the gaps between entries.

    Returns:
        ``None`` if entries are not in the order of the log.
    """
    found: set[int] = set()
    gaps: list[tuple[int, int]] = []
    last, has_any = start, False
    for entries, begins_file in _pieces(files, used):
        offsets = entries["physical_offset"].astype(np.int64)
        hashed = entries["key_hash"].astype(np.int32)
        is_inside = (offsets >= start) & (offsets < stop)
        if not is_inside.all():
            offsets, hashed = offsets[is_inside], hashed[is_inside]
        if not len(offsets):
            continue
        is_first = begins_file or not has_any
        has_any = True
        steps = np.diff(offsets, prepend=last)
        if int(steps.min()) < 0:
            return None
        is_wanted = hashed == hashes[0] if len(hashes) == 1 else np.isin(hashed, hashes)
        found.update(offsets[is_wanted].tolist())
        is_wide = steps > GAP_BYTES
        is_wide[0] |= is_first and steps[0] > 0
        wide = np.flatnonzero(is_wide)
        gaps += [(int(offsets[at] - steps[at]), int(offsets[at])) for at in wide]
        last = int(offsets[-1])
    if stop > last:
        gaps.append((last, stop))
    return found, gaps


def _pieces(files: Files, used: Iterable[tuple[IndexFileRef, int]]) -> Iterator[tuple[Array, bool]]:
    """Yield entries in pieces, and whether a piece is the first of its file."""
    for place, count in used:
        for first in range(1, count + 1, _PIECE_ENTRIES):
            piece = min(_PIECE_ENTRIES, count + 1 - first)
            yield read_entries(files, place, first, piece), first == 1


def _are_cuts(log: LogFiles, gaps: Iterable[tuple[int, int]], start: int, stop: int) -> bool:
    """Whether all gaps start and end with a record, or with the range."""
    places = {each for gap in gaps for each in gap} - {start, stop}
    for place in places:
        segment = log.segment_of(place)
        if segment is None:
            return False
        with Window(log.files, segment, limit=place) as window:
            if not is_record(window, place):
                return False
    return True


def _by_segment(log: LogFiles, offsets: Iterable[int], stop: int) -> Iterator[PlacesRange]:
    """Group offsets, which are in order, by segment."""
    for segment, group in groupby(offsets, key=log.segment_of):
        if segment is not None:
            found = tuple(group)
            for at in range(0, len(found), PLACES_PER_TASK):
                part = found[at : at + PLACES_PER_TASK]
                yield PlacesRange(segment, part, min(segment.end, stop))
