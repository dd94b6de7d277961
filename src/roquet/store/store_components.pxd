"""C types of what ``store_components.py`` keeps."""

from roquet.store.append_timing cimport AppendTiming
from roquet.store.commit_log cimport CommitLog
from roquet.store.consume_queue_store cimport ConsumeQueueStore
from roquet.store.dispatch cimport Dispatcher
from roquet.store.running_flags cimport RunningFlags
from roquet.store.stats cimport StoreStatsService


cdef class StoreComponents:
    cdef public object root
    cdef public object config
    cdef public bint is_sync_flush
    cdef public object files
    cdef public object clock
    cdef public object _post
    cdef public object lock
    cdef public object logics_lock
    cdef public object store_lock
    cdef public RunningFlags flags
    cdef public StoreStatsService stats
    cdef public AppendTiming timing
    cdef public object checkpoint
    cdef public object manifest
    cdef public CommitLog commit_log
    cdef public ConsumeQueueStore queues
    cdef public object index
    cdef public Dispatcher dispatcher
    cdef public object appender
    cdef public object read_ahead
    cdef public object reader
    cdef public object acks
    cdef public list put_hooks
    cdef public object confirm_limit
    cdef public object grown

    cpdef bint confirms_at_once(self)
