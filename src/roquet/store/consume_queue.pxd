"""C types of what ``consume_queue.py`` keeps."""

from libc.stdint cimport int64_t

from roquet.store.entry_files cimport EntryFiles


cdef class ConsumeQueue:
    cdef public object _files
    cdef public EntryFiles entries
    cdef public object root
    cdef public object topic
    cdef public object queue_id
    cdef public object ext
    cdef public int64_t min_queue_offset
    cdef public int64_t max_queue_offset
    cdef public int64_t next_queue_offset
    cdef public int64_t max_physical_offset
    cdef public bytearray pending
