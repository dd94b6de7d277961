"""C types of what ``allocate.py`` keeps."""

from libc.stdint cimport int64_t

from roquet.store.mapped_file cimport MappedFile


cdef class AllocateMappedFile:
    cdef public object _files
    cdef public object _clock
    cdef public object _root
    cdef public int64_t _size_bytes
    cdef public object _warm
    cdef public object _lock
    cdef public dict _ready
    cdef public list _wanted
    cdef public object _populate
    cdef public int64_t _ahead_bytes
    cdef public int64_t _populated_ns
    cdef public object _worker

    cpdef populate_ahead(self, MappedFile segment)
    cpdef bint _is_short(self, MappedFile segment)
