"""C types of what ``puts.py`` keeps."""

from libc.stdint cimport int64_t

from roquet.store.append cimport Appender
from roquet.store.append_timing cimport AppendTiming
from roquet.store.commit_log cimport CommitLog
from roquet.store.dispatch cimport Dispatcher
from roquet.store.mapped_file_queue cimport MappedFileQueue
from roquet.store.running_flags cimport RunningFlags
from roquet.store.stats cimport StoreStatsService
from roquet.store.store_components cimport StoreComponents


cdef class PlainPuts:
    cdef public bint is_allowed
    cdef public int64_t now_ms
    cdef public bint dispatch
    cdef public int64_t began_ns
    cdef public int64_t began_offset


cdef class Puts:
    cdef public StoreComponents _components
    cdef public object _flusher
    cdef public object _acks
    cdef public Appender _appender
    cdef public Dispatcher _dispatcher
    cdef public RunningFlags _flags
    cdef public object _hooks
    cdef public object _lock
    cdef public CommitLog _log
    cdef public MappedFileQueue _segments
    cdef public StoreStatsService _stats
    cdef public AppendTiming _timing
    cdef public list _burst
    cdef public bint is_open
    cdef public bint is_replica

    cpdef PlainPuts begin_plain_puts(self)
    cpdef finish_plain_puts(self, PlainPuts puts, int64_t messages, done=*)
    cpdef bint _allows_plain_puts(self)
    cpdef _dispatch_burst(self)
