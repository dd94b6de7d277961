"""Follows the chains of an index file; compiled twin of ``ExpectedChains`` in ``roquet.spark``."""

from libc.stdint cimport int32_t, int64_t

from roquet.model._bytes cimport roquet_get32

cdef enum:
    ENTRY_BYTES = 20
    PREVIOUS_AT = 16


def add_sound(
    int32_t[::1] newest not None, int64_t first, const unsigned char[::1] entries not None
):
    """Add entries if each names its previous one; otherwise change nothing.

    Args:
        newest: The number of the newest entry of each slot.
        first: The number of the first entry.
        entries: The entries as they are in the file.
    """
    cdef Py_ssize_t count = entries.shape[0] // ENTRY_BYTES
    cdef Py_ssize_t at
    cdef int32_t slots = <int32_t>newest.shape[0]
    cdef int32_t key_hash
    cdef const unsigned char *entry
    if slots <= 0 or count == 0:
        return count == 0
    with nogil:
        for at in range(count):
            entry = &entries[at * ENTRY_BYTES]
            key_hash = <int32_t>roquet_get32(entry)
            if key_hash < 0 or newest[key_hash % slots] != <int32_t>roquet_get32(entry + PREVIOUS_AT):
                break
            newest[key_hash % slots] = <int32_t>(first + at)
        else:
            at = count
        if at < count:
            # Each entry that was added named the one that its slot had before.
            while at > 0:
                at -= 1
                entry = &entries[at * ENTRY_BYTES]
                key_hash = <int32_t>roquet_get32(entry)
                newest[key_hash % slots] = <int32_t>roquet_get32(entry + PREVIOUS_AT)
            at = -1
    return at >= 0
