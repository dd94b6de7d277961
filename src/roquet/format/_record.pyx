"""Plain records of the CommitLog, for Python: walk over them, compare one with its queue entry."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t

from roquet.format._crc32 cimport roquet_crc32


def crc32(const unsigned char[::1] data not None):
    """CRC-32, as ``zlib.crc32`` computes it."""
    if data.shape[0] == 0:
        return 0
    return roquet_crc32(&data[0], data.shape[0])


def walk(const unsigned char[::1] view not None, Py_ssize_t position, Py_ssize_t limit,
         int64_t start_offset, bint check_crc):
    """Skip plain, whole records from ``position`` on.

    Returns (position of the first record that is not plain, records skipped, position of the last
    of them, its store timestamp); the last two are -1 and 0 if none was skipped.
    """
    cdef Record record
    cdef int64_t count = 0, last_ms = 0
    cdef Py_ssize_t last = -1
    if position < 0:
        raise ValueError("a position before the segment")
    limit = min(limit, view.shape[0])
    with nogil:
        while position < limit and read_record(
            &view[position], limit - position, start_offset + position, check_crc, &record
        ):
            last = position
            last_ms = record.store_timestamp_ms
            count += 1
            position += record.size
    return position, count, last, last_ms


def fits_entry(const unsigned char[::1] record not None, int64_t physical_offset, bytes topic not None,
               int32_t queue_id, int64_t queue_offset, int64_t tags_code):
    """Whether a record is plain, whole, and fits its queue entry; due times are not compared."""
    cdef Record found
    cdef Text name
    if record.shape[0] == 0:
        return False
    name.at = <const unsigned char *>PyBytes_AS_STRING(topic)
    name.size = PyBytes_GET_SIZE(topic)
    return fits_place(
        &record[0], record.shape[0], physical_offset, &name, queue_id, queue_offset, &found
    ) and (found.is_delayed or tags_hash(&found.properties) == tags_code)
