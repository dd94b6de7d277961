"""C types of what ``stats.py`` keeps."""

from libc.stdint cimport int64_t


cdef class StoreStatsService:
    cdef public object _clock
    cdef public int64_t boot_timestamp_ms
    cdef public int64_t _boot_ns
    cdef public int64_t put_messages
    cdef public int64_t put_bytes
    cdef public int64_t put_failed
    cdef public int64_t get_found
    cdef public int64_t get_missed
    cdef public int64_t get_messages
    cdef public int64_t put_latency_max_ns
    cdef public int64_t get_latency_max_ns
    cdef public list _latencies
    cdef public object _last_latencies
    cdef public int64_t _rotated_ns
    cdef public object _snapshots

    cpdef count_put(self, int64_t messages, int64_t size_bytes, int64_t took_ns)
