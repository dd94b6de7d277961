"""C types of what ``commit_log.py`` keeps."""

from libc.stdint cimport int64_t

from roquet.store.allocate cimport AllocateMappedFile
from roquet.store.mapped_file_queue cimport MappedFileQueue


cdef class CommitLog:
    cdef public object _config
    cdef public object _clock
    cdef public MappedFileQueue queue
    cdef public AllocateMappedFile allocator
    cdef public object pool
    cdef public object rules
    cdef public object _append_rules
    cdef public int64_t flushed_offset
    cdef public int64_t store_timestamp_ms

    cpdef int64_t next_store_timestamp(self)
