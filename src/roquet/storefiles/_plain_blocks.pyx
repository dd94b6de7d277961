"""Plain records without faults, many at a time, as columns.

The compiled twin of reading them with ``records.py``, checking them with ``record_checks.py``
except for their store times, and deriving their entries with ``format/derived.py``. It stops at
the first record that is not plain (see ``format/_record.pxd``) or in which those may find a fault.
"""

import array

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcmp

from roquet.format._derived cimport KEYS_MAX, Keys, collect_keys
from roquet.format._layout cimport CRC_PROPERTY_BYTES, KNOWN_FLAGS
from roquet.format._record cimport Record, read_record, tags_hash
from roquet.model._constants cimport (
    COMPRESSED, COMPRESSION_LZ4, COMPRESSION_MASK, COMPRESSION_ZSTD, INNER_BATCH,
)
from roquet.model._text cimport Text, roquet_find, roquet_is_utf8, roquet_java_hash

cdef array.array LONGS = array.array("q")
cdef array.array INTS = array.array("i")


cdef class PlainBlock:
    """The columns of some records, an ``array`` each."""

    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t reached
    cdef readonly array.array physical_offsets
    cdef readonly array.array sizes
    cdef readonly array.array store_times_ms
    cdef readonly array.array places
    cdef readonly array.array queue_offsets
    cdef readonly array.array tags_codes
    cdef readonly array.array owed_keys
    cdef readonly array.array tag_keys


cdef class PlainBlockReader:
    """Reads blocks; see :class:`roquet.storefiles.plain_blocks.PlainBlockReader`."""

    cdef object _number_of
    cdef Py_ssize_t _rows_max
    cdef dict _numbers
    cdef bytes _topic
    cdef int32_t _queue_id
    cdef int32_t _number
    cdef uint32_t _hash

    def __init__(self, number_of, Py_ssize_t rows_max):
        self._number_of = number_of
        self._rows_max = max(rows_max, 1)
        self._numbers = {}
        self._topic = None

    def read(
        self, const unsigned char[::1] view not None, Py_ssize_t position, int64_t stop,
        Py_ssize_t limit, int64_t base,
    ):
        """Read the plain records that start from ``position`` on and before ``stop``."""
        cdef PlainBlock block = None
        cdef Record record
        cdef Keys keys
        cdef Py_ssize_t row = 0, owed = 0, tags = 0, owed_max = 2 * self._rows_max + KEYS_MAX
        cdef int64_t key
        cdef uint32_t i
        if position < 0:
            raise ValueError(f"position {position}")
        limit = min(limit, view.shape[0])
        while row < self._rows_max and position < stop and position < limit:
            if not read_record(&view[position], limit - position, base + position, True, &record):
                break
            if not is_sound(&record) or not self._find(&record) or owed_max - owed < KEYS_MAX:
                break
            if not collect_keys(self._hash, &record.properties, &keys):
                break
            if block is None:
                block = self._new_block(owed_max)
            block.physical_offsets.data.as_longlongs[row] = base + position
            block.sizes.data.as_ints[row] = <int32_t>record.size
            block.store_times_ms.data.as_longlongs[row] = record.store_timestamp_ms
            block.places.data.as_ints[row] = self._number
            block.queue_offsets.data.as_longlongs[row] = record.queue_offset
            block.tags_codes.data.as_longlongs[row] = tags_hash(&record.properties)
            for i in range(keys.count):
                key = (<int64_t>row << 32) | keys.hashes[i]
                if record.properties.tags.size and i + 1 == keys.count:
                    block.tag_keys.data.as_longlongs[tags] = key
                    tags += 1
                else:
                    block.owed_keys.data.as_longlongs[owed] = key
                    owed += 1
            row += 1
            position += record.size
        if block is None:
            return None
        for column in (
            block.physical_offsets, block.sizes, block.store_times_ms, block.places,
            block.queue_offsets, block.tags_codes,
        ):
            array.resize(column, row)
        array.resize(block.owed_keys, owed)
        array.resize(block.tag_keys, tags)
        block.rows = row
        block.reached = position
        return block

    cdef PlainBlock _new_block(self, Py_ssize_t owed_max):
        cdef PlainBlock block = PlainBlock.__new__(PlainBlock)
        block.physical_offsets = array.clone(LONGS, self._rows_max, False)
        block.sizes = array.clone(INTS, self._rows_max, False)
        block.store_times_ms = array.clone(LONGS, self._rows_max, False)
        block.places = array.clone(INTS, self._rows_max, False)
        block.queue_offsets = array.clone(LONGS, self._rows_max, False)
        block.tags_codes = array.clone(LONGS, self._rows_max, False)
        block.owed_keys = array.clone(LONGS, owed_max, False)
        block.tag_keys = array.clone(LONGS, self._rows_max, False)
        return block

    cdef bint _find(self, const Record *record) except -1:
        """Set the number of a record's queue; false if its records are left to the reference."""
        cdef const Text *topic = &record.topic
        cdef bint is_same = self._topic is not None and (
            PyBytes_GET_SIZE(self._topic) == topic.size
            and memcmp(PyBytes_AS_STRING(self._topic), topic.at, topic.size) == 0
        )
        if is_same and self._queue_id == record.queue_id:
            return self._number >= 0
        if not is_same:
            self._topic = (<const char *>topic.at)[:topic.size]
            self._hash = roquet_java_hash(
                roquet_java_hash(0, topic.at, topic.size), <const unsigned char *>b"#", 1
            )
        self._queue_id = record.queue_id
        key = (self._topic, self._queue_id)
        number = self._numbers.get(key)
        if number is None:
            number = self._number_of(self._topic.decode("ascii"), self._queue_id)
            self._numbers[key] = number
        self._number = number
        return self._number >= 0


cdef inline bint is_sound(const Record *record) noexcept nogil:
    """Whether flags and properties have no faults, and nothing that needs the reference."""
    cdef uint32_t sys_flag = record.sys_flag
    if record.is_delayed or sys_flag & ~<uint32_t>KNOWN_FLAGS or sys_flag & INNER_BATCH:
        return False
    if sys_flag & COMPRESSED and not looks_compressed(sys_flag, &record.body):
        return False
    return has_sound_pairs(&record.raw_properties) and not ends_like_crc(&record.raw_properties)


cdef inline bint looks_compressed(uint32_t sys_flag, const Text *body) noexcept nogil:
    cdef uint32_t kind = sys_flag & COMPRESSION_MASK
    if kind == COMPRESSION_LZ4:
        return body.size >= 4 and memcmp(body.at, b"\x04\x22\x4d\x18", 4) == 0
    if kind == COMPRESSION_ZSTD:
        return body.size >= 4 and memcmp(body.at, b"\x28\xb5\x2f\xfd", 4) == 0
    return body.size >= 2 and body.at[0] & 0xF == 8 and (body.at[0] * 256 + body.at[1]) % 31 == 0


cdef inline bint has_sound_pairs(const Text *text) noexcept nogil:
    """Whether all properties are names and values, and none of them names light queues."""
    cdef const unsigned char *at = text.at
    cdef const unsigned char *end = at + text.size
    cdef const unsigned char *pair_end
    cdef const unsigned char *name_end
    if not roquet_is_utf8(at, text.size):
        return False
    while at < end:
        pair_end = roquet_find(at, end, 2)
        if pair_end > at:
            name_end = roquet_find(at, pair_end, 1)
            if name_end == at or name_end == pair_end:
                return False
            if name_end - at == 20 and memcmp(at, b"INNER_MULTI_DISPATCH", 20) == 0:
                return False
        at = pair_end + 1
    return True


cdef inline bint ends_like_crc(const Text *text) noexcept nogil:
    """Whether the last bytes may be a damaged CRC property."""
    cdef const unsigned char *last = text.at + text.size - CRC_PROPERTY_BYTES
    return text.size >= CRC_PROPERTY_BYTES and (
        memcmp(last, b"__CRC", 5) == 0 or memcmp(last + 5, b"32#\x01", 4) == 0
    )
