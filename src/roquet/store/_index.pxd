"""Entries of the index for plain records, as ``index.py`` and ``index_file.py`` write them."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from roquet.format._derived cimport Keys
from roquet.format._layout cimport *
from roquet.model._bytes cimport (
    roquet_get32, roquet_get64, roquet_prefetch, roquet_put32, roquet_put64,
)


cdef struct IndexTarget:
    unsigned char *at
    uint32_t slots
    uint32_t entries


cdef inline bint put_key(IndexTarget *index, uint32_t hash_, int64_t physical_offset, int64_t now_ms) noexcept nogil:
    """IndexFile.put_key; the caller has made sure that there is room."""
    cdef unsigned char *head = index.at
    cdef uint32_t number = roquet_get32(head + INDEX_HEADER_INDEX_COUNT_AT)
    cdef unsigned char *slot = head + INDEX_HEADER_BYTES + <size_t>(hash_ % index.slots) * SLOT_BYTES
    cdef unsigned char *entry
    cdef int32_t previous = <int32_t>roquet_get32(slot)
    cdef int64_t begin_ms = <int64_t>roquet_get64(head + INDEX_HEADER_BEGIN_TIMESTAMP_AT), seconds = 0
    if number == 0:
        number = 1
    if previous <= 0 or previous > <int32_t>number:
        previous = 0
    if begin_ms > 0 and now_ms > begin_ms:
        seconds = (now_ms - begin_ms) // 1000
        if seconds > SECONDS_MAX:
            seconds = SECONDS_MAX
    entry = head + INDEX_HEADER_BYTES + (
        <size_t>index.slots * SLOT_BYTES + <size_t>number * INDEX_ENTRY_BYTES
    )
    roquet_put32(entry + INDEX_ENTRY_KEY_HASH_AT, hash_)
    roquet_put64(entry + INDEX_ENTRY_PHY_OFFSET_AT, <uint64_t>physical_offset)
    roquet_put32(entry + INDEX_ENTRY_TIME_DIFF_AT, <uint32_t>seconds)
    roquet_put32(entry + INDEX_ENTRY_PREV_INDEX_AT, <uint32_t>previous)
    roquet_put32(slot, number)
    if number == 1:
        roquet_put64(head + INDEX_HEADER_BEGIN_TIMESTAMP_AT, <uint64_t>now_ms)
        roquet_put64(head + INDEX_HEADER_BEGIN_PHY_OFFSET_AT, <uint64_t>physical_offset)
    roquet_put64(head + INDEX_HEADER_END_TIMESTAMP_AT, <uint64_t>now_ms)
    roquet_put64(head + INDEX_HEADER_END_PHY_OFFSET_AT, <uint64_t>physical_offset)
    if previous == 0:
        roquet_put32(head + INDEX_HEADER_HASH_SLOT_COUNT_AT,
                     roquet_get32(head + INDEX_HEADER_HASH_SLOT_COUNT_AT) + 1)
    roquet_put32(head + INDEX_HEADER_INDEX_COUNT_AT, number + 1)
    return True


cdef inline unsigned char[::1] open_index(IndexTarget *index, object file):
    """Write to an index file; returns its bytes, to be kept as long as the target is used."""
    cdef unsigned char[::1] view = file.mapping
    index.at = &view[0]
    index.slots = file.slots
    index.entries = file.entries
    return view


cdef inline bint index_has_room(const IndexTarget *index, uint32_t count) noexcept nogil:
    """Whether ``count`` keys fit."""
    cdef uint32_t number = roquet_get32(index.at + INDEX_HEADER_INDEX_COUNT_AT)
    # A damaged count may be huge, and the sum would overflow.
    return number <= index.entries and (number if number else 1) + count <= index.entries


cdef inline void prefetch_slots(const IndexTarget *index, const Keys *keys) noexcept nogil:
    """Fetch the keys' slots, which may be anywhere in the file, while the record is written."""
    cdef uint32_t i
    for i in range(keys.count):
        roquet_prefetch(index.at + INDEX_HEADER_BYTES + <size_t>(keys.hashes[i] % index.slots) * SLOT_BYTES)


cdef inline void index_record(
    IndexTarget *index, const Keys *keys, int64_t offset, int64_t now_ms
) noexcept nogil:
    """IndexService.build for a plain record and a file with room."""
    cdef uint32_t i
    if <int64_t>roquet_get64(index.at + INDEX_HEADER_END_PHY_OFFSET_AT) > offset:
        return
    for i in range(keys.count):
        put_key(index, keys.hashes[i], offset, now_ms)
