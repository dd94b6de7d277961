"""Keys under which plain records are indexed; compiled twin of ``derived.py``."""

from libc.stdint cimport uint32_t
from libc.string cimport memchr

from roquet.format._record cimport Properties
from roquet.model._text cimport roquet_java_hash


cdef enum:
    KEYS_MAX = 32


cdef struct Keys:
    uint32_t count
    uint32_t hashes[KEYS_MAX]


cdef inline uint32_t key_hash(uint32_t topic_hash, const unsigned char *at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t value = roquet_java_hash(topic_hash, at, size)
    if value == 0x80000000u:
        return 0
    return 0u - value if value & 0x80000000u else value


cdef inline bint collect_keys(uint32_t topic_hash, const Properties *found, Keys *keys) noexcept nogil:
    """Hashes of all keys of a record, in the order in which they are indexed; false if too many.

    That of the tags is the last one, if there are any.
    """
    cdef const unsigned char *at = found.keys.at
    cdef const unsigned char *end = at + found.keys.size
    cdef const unsigned char *stop
    keys.count = 0
    if found.unique.size:
        keys.hashes[keys.count] = key_hash(topic_hash, found.unique.at, found.unique.size)
        keys.count += 1
    while found.keys.size and at < end:
        stop = <const unsigned char *>memchr(at, c" ", end - at)
        if stop == NULL:
            stop = end
        if stop > at:
            if keys.count == KEYS_MAX - 1:
                return False
            keys.hashes[keys.count] = key_hash(topic_hash, at, stop - at)
            keys.count += 1
        at = stop + 1
    if found.tags.size:
        topic_hash = roquet_java_hash(topic_hash, <const unsigned char *>b"T#", 2)
        keys.hashes[keys.count] = key_hash(topic_hash, found.tags.at, found.tags.size)
        keys.count += 1
    return True
