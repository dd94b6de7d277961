"""C types of what ``read_budget.py`` keeps."""

from libc.stdint cimport int64_t


cdef class ReadBudget:
    cdef public object _call_soon
    cdef public int64_t _read_bytes
    cdef public object _waiting
    cdef public bint _is_scheduled
