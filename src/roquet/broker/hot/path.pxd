"""C types of what ``path.py`` keeps."""

from libc.stdint cimport int64_t

from roquet.broker.hot._requests cimport PlainRequests
from roquet.broker.hot._send cimport Peer
from roquet.broker.service.flow_control cimport FlowControl
from roquet.store.puts cimport Puts
from roquet.store.running_flags cimport RunningFlags
from roquet.store.stats cimport StoreStatsService


cdef class HotPath:
    cdef public Puts puts
    cdef public object reading
    cdef public RunningFlags store_flags
    cdef public StoreStatsService store_stats
    cdef public object clock
    cdef public object waits
    cdef public int64_t requests_taken
    cdef public FlowControl _flow
    cdef public object _stats
    cdef public object consume_hooks
    cdef public object serves_pulls
    cdef public object _answers
    cdef public PlainRequests requests

    cpdef count(self, int64_t requests)


cdef class HotReader:
    cdef public HotPath path
    cdef public Peer _peer
    cdef public bint _may_pull

    cpdef tuple take(self, data, int64_t position)
    cpdef tuple _read(self, data, int64_t position)
