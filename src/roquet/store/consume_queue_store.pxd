"""C types of what ``consume_queue_store.py`` keeps."""

from libc.stdint cimport int64_t


cdef class ConsumeQueueStore:
    cdef public object _files
    cdef public object _root
    cdef public object _ext_root
    cdef public object _batch_root
    cdef public object _config
    cdef public object _descriptors
    cdef public object _dirty_lock
    cdef public dict _dirty
    cdef public dict table
    cdef public dict batch_table
    cdef public object is_batch_topic
    cdef public list touched
    cdef public list _touched_batches
    cdef public list _grown
    cdef public object _leaving
    cdef public object write_plain
    cdef public object before_removal
    cdef public int64_t synced_offset

    cpdef list write_pending(self)
