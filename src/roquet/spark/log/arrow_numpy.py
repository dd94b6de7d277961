"""Records of the CommitLog to Arrow columns, with numpy: the reference of ``roquet._arrow``.

Owns nothing but the way: the sizes of the records are followed one by one, then every field of all
records of a piece is taken at once, big-endian, from the places that the lengths tell. Text goes
through the functions of the reference path.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roquet.format.commit_log import (
    BORN_HOST_AT,
    CRC_MASK,
    END_OF_SEGMENT_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
)
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.host import IPV4_HOST_BYTES, IPV6_HOST_BYTES
from roquet.spark.schema import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS

ENDED, FULL, BLANK, FAULT, MORE = range(5)

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_START = struct.Struct(">iI20xq")  # totalSize, magic, physicalOffset
_BEHIND_BODY_MAX = 2 + 65535 + 2 + 32767
_INT_FIELDS = {"queueId": 12, "flag": 16, "sysFlag": 36, "bodyCrc": 8}
_LONG_FIELDS = {"queueOffset": 20, "physicalOffset": 28}
_PROPERTY_COLUMNS = {"tags", "keys", "msgId", "properties"}


class NumpyBlock(NamedTuple):
    """The columns of one piece."""

    rows: int
    arrays: dict[str, pa.Array]
    compressed: list[tuple[int, int]]


class _Records(NamedTuple):
    """Where the parts of all records of a piece are."""

    starts: Numbers
    sizes: Numbers
    sys_flags: Numbers
    store_host_at: Numbers
    body_at: Numbers
    body_bytes: Numbers
    topic_at: Numbers
    topic_bytes: Numbers
    properties_at: Numbers

    def only(self, mask: npt.NDArray[np.bool_]) -> _Records:
        return _Records(*(part[mask] for part in self))


class NumpyDecoder:
    """As :class:`roquet._arrow.Decoder`, whose arguments it has."""

    def __init__(
        self,
        *,
        columns: Iterable[str],
        rows_max: int,
        bytes_max: int,
        check_crc: bool,
        takes_topic: Callable[[str], bool] | None,
        queue_ids: Iterable[int],
        key_bytes: Iterable[bytes],
        takes_keys: Callable[[dict[str, str]], bool],
        store_from_ms: int,
        store_to_ms: int,
        is_good: Callable[[bytes, int], bool],
        read_properties: Callable[[bytes], dict[str, str]],
        read_host: Callable[[bytes], str],
    ) -> None:
        """Fix what is decoded."""
        self._columns = frozenset(columns)
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._check_crc = check_crc
        self._takes_topic = takes_topic
        self._queue_ids = sorted(queue_ids)
        self._has_keys = bool(tuple(key_bytes))
        self._takes_keys = takes_keys
        self._store_from_ms = store_from_ms
        self._store_to_ms = store_to_ms
        self._is_good = is_good
        self._read_properties = read_properties
        self._read_host = read_host

    def decode(
        self, data: memoryview, position: int, stop: int, end: int, base: int
    ) -> tuple[NumpyBlock, int, int]:
        """As :meth:`roquet._arrow.Decoder.decode`."""
        starts, sizes, reached, why = _steps(
            data,
            position,
            min(stop, end),
            end,
            records_max=self._rows_max,
            bytes_max=self._bytes_max,
        )
        if not starts:
            return NumpyBlock(0, {}, []), reached, why
        records, good = _lay_out(data, np.array(starts, np.int64), np.array(sizes, np.int64))
        good &= self._sound(data, records, good, base)
        if not good.all():
            first_bad = int(np.argmin(good))
            reached, why = starts[first_bad], FAULT
            records = records.only(np.arange(len(starts)) < first_bad)
        return self._block(data, records), reached, why

    def _sound(
        self, data: memoryview, records: _Records, good: npt.NDArray[np.bool_], base: int
    ) -> npt.NDArray[np.bool_]:
        """What is checked beyond the lengths, where those are right."""
        sound = good.copy()
        if base >= 0:
            sound &= _longs(data, records.starts + 28) == records.starts + base
        sound &= (_ints(data, records.starts + 12) >= 0) & (_longs(data, records.starts + 20) >= 0)
        checked = np.flatnonzero(sound)
        topics, numbers = _topics(data, records, sound)
        sound[checked] &= np.array([_is_topic(name) for name in topics], np.bool_)[numbers]
        if self._check_crc:
            for row in np.flatnonzero(sound):
                sound[row] = self._fits_crc(data, records, int(row), base)
        return sound

    def _fits_crc(self, data: memoryview, records: _Records, row: int, base: int) -> bool:
        start, size = int(records.starts[row]), int(records.sizes[row])
        body = int(records.body_at[row])
        crc = zlib.crc32(data[body : body + int(records.body_bytes[row])]) & CRC_MASK
        if crc != int.from_bytes(data[start + 8 : start + 12], "big"):
            return False
        place = base + start if base >= 0 else -1
        return self._is_good(bytes(data[start : start + size]), place)

    def _block(self, data: memoryview, records: _Records) -> NumpyBlock:
        store_ms = _longs(data, records.store_host_at - 8)
        wanted = (store_ms >= self._store_from_ms) & (store_ms < self._store_to_ms)
        if self._queue_ids:
            wanted &= np.isin(_ints(data, records.starts + 12), self._queue_ids)
        if self._takes_topic is not None:
            topics, numbers = _topics(data, records, np.ones(len(records.starts), np.bool_))
            taken = [self._takes_topic(str(name, "utf-8")) for name in topics]
            wanted &= np.array(taken, np.bool_)[numbers]
        records = records.only(wanted)
        found: list[dict[str, str]] = []
        if self._has_keys or self._columns & _PROPERTY_COLUMNS:
            found = [
                self._read_properties(bytes(data[at:stop]))
                for at, stop in zip(
                    records.properties_at.tolist(),
                    (records.starts + records.sizes).tolist(),
                    strict=True,
                )
            ]
        if self._has_keys:
            taken = [self._takes_keys(properties) for properties in found]
            found = [each for each, is_taken in zip(found, taken, strict=True) if is_taken]
            records = records.only(np.array(taken, np.bool_))
        compressed: list[tuple[int, int]] = []
        if "body" in self._columns:
            rows = np.flatnonzero(records.sys_flags & flags.COMPRESSED)
            compressed = [(int(row), int(records.sys_flags[row])) for row in rows]
        arrays = {name: self._column(name, data, records, found) for name in sorted(self._columns)}
        return NumpyBlock(len(records.starts), arrays, compressed)

    def _column(
        self, name: str, data: memoryview, records: _Records, found: Sequence[dict[str, str]]
    ) -> pa.Array:
        starts, body = records.starts, records.body_at
        if name in _INT_FIELDS:
            return pa.array(_ints(data, starts + _INT_FIELDS[name]).astype(np.int32))
        if name in _LONG_FIELDS:
            return pa.array(_longs(data, starts + _LONG_FIELDS[name]))
        makers: dict[str, Callable[[], pa.Array]] = {
            "storeSize": lambda: pa.array(records.sizes.astype(np.int32)),
            "reconsumeTimes": lambda: pa.array(_ints(data, body - 16).astype(np.int32)),
            "preparedTransactionOffset": lambda: pa.array(_longs(data, body - 12)),
            "bornTimestamp": lambda: _timestamps(_longs(data, starts + 40)),
            "storeTimestamp": lambda: _timestamps(_longs(data, records.store_host_at - 8)),
            "body": lambda: _cut(data, body, records.body_bytes),
            "topic": lambda: _cut(data, records.topic_at, records.topic_bytes).cast(pa.string()),
            "bornHost": lambda: self._hosts(data, starts + BORN_HOST_AT, records.store_host_at - 8),
            "storeHost": lambda: self._hosts(data, records.store_host_at, body - 16),
        }
        make = makers.get(name)
        return self._texts(name, data, records, found) if make is None else make()

    def _hosts(self, data: memoryview, at: Numbers, stop: Numbers) -> pa.Array:
        packed = _cut(data, at, stop - at).dictionary_encode()
        texts = [self._read_host(host) for host in packed.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(packed.indices)

    def _texts(
        self, name: str, data: memoryview, records: _Records, found: Sequence[dict[str, str]]
    ) -> pa.Array:
        if name == "properties":
            kind = pa.map_(pa.string(), pa.string())
            return pa.array([list(each.items()) for each in found], kind)
        if name in {"tags", "keys"}:
            word = prop.TAGS if name == "tags" else prop.KEYS
            return pa.array([each.get(word) for each in found], pa.string())
        ids = [
            (bytes(data[at:stop]) + bytes(data[start + 28 : start + 36])).hex().upper()
            for start, at, stop in zip(
                records.starts.tolist(),
                records.store_host_at.tolist(),
                (records.body_at - 16).tolist(),
                strict=True,
            )
        ]
        if name == "msgId":
            word = prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX
            ids = [each.get(word, made) for each, made in zip(found, ids, strict=True)]
        return pa.array(ids, pa.string())


def walk(
    data: memoryview, position: int, stop: int, end: int, base: int, *, records_max: int
) -> tuple[int, int, int]:
    """As :func:`roquet._arrow.walk`."""
    starts, sizes, reached, why = _steps(
        data, position, min(stop, end), end, records_max=records_max, bytes_max=1 << 62
    )
    if starts:
        records, good = _lay_out(data, np.array(starts, np.int64), np.array(sizes, np.int64))
        good &= _longs(data, records.starts + 28) == records.starts + base
        good &= (_ints(data, records.starts + 12) >= 0) & (_longs(data, records.starts + 20) >= 0)
        if not good.all():
            first_bad = int(np.argmin(good))
            return first_bad, starts[first_bad], FAULT
    return len(starts), reached, why


def _steps(
    data: memoryview, position: int, stop: int, end: int, *, records_max: int, bytes_max: int
) -> tuple[list[int], list[int], int, int]:
    """Starts and sizes of records that follow each other, where this ends, and why."""
    starts: list[int] = []
    sizes: list[int] = []
    size_all = len(data)
    first = position
    while position < stop:
        if len(starts) == records_max or position - first >= bytes_max:
            return starts, sizes, position, FULL
        rest, room = end - position, size_all - position
        if rest < END_OF_SEGMENT_BYTES:
            return starts, sizes, position, FAULT
        if room < _START.size:
            head = bytes(data[position : position + END_OF_SEGMENT_BYTES])
            is_end = head[4:] == MAGIC_BLANK.to_bytes(4, "big")
            why = BLANK if is_end else MORE if rest > room else FAULT
            return starts, sizes, position, why
        size, magic, _ = _START.unpack_from(data, position)
        if magic == MAGIC_BLANK:
            return starts, sizes, position, BLANK
        if magic not in {MAGIC_V1, MAGIC_V2} or not RECORD_BYTES_MIN <= size <= rest:
            return starts, sizes, position, FAULT
        if size > room:
            why = MORE if _may_be_long(data, position, size, room) else FAULT
            return starts, sizes, position, why
        starts.append(position)
        sizes.append(size)
        position += size
    return starts, sizes, position, ENDED


def _may_be_long(data: memoryview, position: int, size: int, room: int) -> bool:
    """Whether a record of which only the first part is there agrees with its body's length."""
    if room < RECORD_BYTES_MIN:
        return True
    sys_flag = int.from_bytes(data[position + 36 : position + 40], "big")
    body_at = BORN_HOST_AT + 8 + 16
    for bit in (flags.BORN_HOST_V6, flags.STORE_HOST_V6):
        body_at += IPV6_HOST_BYTES if sys_flag & bit else IPV4_HOST_BYTES
    if room < body_at:
        return body_at <= size
    length = data[position + body_at - 4 : position + body_at]
    body_bytes = int.from_bytes(length, "big", signed=True)
    return 0 <= body_bytes <= size - body_at <= body_bytes + _BEHIND_BODY_MAX


def _lay_out(
    data: memoryview, starts: Numbers, sizes: Numbers
) -> tuple[_Records, npt.NDArray[np.bool_]]:
    """The parts of records that are whole in ``data``, and of which the lengths agree."""
    sys_flags = _ints(data, starts + 36)
    born = np.where(sys_flags & flags.BORN_HOST_V6, IPV6_HOST_BYTES, IPV4_HOST_BYTES)
    store = np.where(sys_flags & flags.STORE_HOST_V6, IPV6_HOST_BYTES, IPV4_HOST_BYTES)
    store_host = BORN_HOST_AT + born + 8
    body = store_host + store + 16
    good = body <= sizes
    body_bytes = _ints(data, starts + np.where(good, body, 4) - 4)
    length_bytes = np.where(_ints(data, starts + 4) == MAGIC_V2 - (1 << 32), 2, 1)
    topic = body + body_bytes + length_bytes
    good &= (body_bytes >= 0) & (topic + 2 <= sizes)
    array = np.frombuffer(data, np.uint8)
    topic_length_at = starts + np.where(good, topic, 2)
    topic_bytes = array[topic_length_at - 1].astype(np.int64)
    topic_bytes += np.where(length_bytes == 2, array[topic_length_at - 2].astype(np.int64) << 8, 0)
    properties = topic + topic_bytes + 2
    good &= properties <= sizes
    length_at = starts + np.where(good, properties, 2)
    length = (array[length_at - 2].astype(np.int64) << 8) + array[length_at - 1]
    good &= (length <= prop.PROPERTIES_BYTES_MAX) & (properties + length == sizes)
    records = _Records(
        starts,
        sizes,
        sys_flags,
        starts + store_host,
        starts + body,
        body_bytes,
        starts + topic,
        topic_bytes,
        starts + properties,
    )
    return records, good


def _gather(data: memoryview, at: Numbers, kind: str, size: int) -> Numbers:
    array = np.frombuffer(data, np.uint8)
    rows = array[at[:, None] + np.arange(size)]
    return np.ascontiguousarray(rows).view(kind)[:, 0].astype(np.int64)


def _ints(data: memoryview, at: Numbers) -> Numbers:
    return _gather(data, at, ">i4", 4)


def _longs(data: memoryview, at: Numbers) -> Numbers:
    return _gather(data, at, ">i8", 8)


def _cut(data: memoryview, at: Numbers, size: Numbers) -> pa.Array:
    """Ranges of bytes, which follow each other, as an array of its own memory."""
    count = len(at)
    if count == 0:
        return pa.array([], pa.binary())
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = at
    edges[1::2] = at + size
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    return whole.take(pa.array(np.arange(0, 2 * count - 1, 2)))


def _topics(
    data: memoryview, records: _Records, mask: npt.NDArray[np.bool_]
) -> tuple[list[bytes], Numbers]:
    """The different topics of some records, and for each record the number of its own."""
    cut = _cut(data, records.topic_at[mask], records.topic_bytes[mask]).dictionary_encode()
    return cut.dictionary.to_pylist(), cut.indices.to_numpy().astype(np.int64)


def _is_topic(name: bytes) -> bool:
    try:
        text = str(name, "utf-8")
    except UnicodeDecodeError:
        return False
    return bool(text) and "\0" not in text


def _timestamps(times_ms: Numbers) -> pa.Array:
    outside = (times_ms < TIMESTAMP_MIN_MS) | (times_ms > TIMESTAMP_MAX_MS)
    values = np.where(outside, 0, times_ms) * 1000
    return pa.array(values, pa.int64(), mask=outside).cast(pa.timestamp("us", tz="UTC"))
