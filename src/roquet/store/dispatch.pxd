"""C types of what ``dispatch.py`` keeps."""

from libc.stdint cimport int64_t

from roquet.store.commit_log cimport CommitLog
from roquet.store.consume_queue_store cimport ConsumeQueueStore
from roquet.store.running_flags cimport RunningFlags


cdef class Dispatcher:
    cdef public CommitLog _log
    cdef public ConsumeQueueStore _queues
    cdef public object _index
    cdef public RunningFlags _flags
    cdef public object _is_replica
    cdef public bint _checks_crc
    cdef public object _rules
    cdef public int64_t dispatched_offset
    cdef public int64_t store_timestamp_ms
    cdef public int64_t written_timestamp_ms
    cdef public int64_t written_offset
    cdef public list dispatchers
    cdef public list arriving
    cdef public object bitmap
    cdef public object redispatch
    cdef public object shortage

    cpdef finish(self)
