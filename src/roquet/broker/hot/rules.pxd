"""C types of what ``rules.py`` keeps."""

from roquet.broker.service.flow_control cimport FlowControl


cdef class HotRules:
    cdef public object _config
    cdef public object _topics
    cdef public object _groups
    cdef public object _offsets
    cdef public dict resets
    cdef public dict pulled_offsets
    cdef public FlowControl _flow
    cdef public object _sends
    cdef public object _static_topics
    cdef public object _responses
    cdef public object _check
    cdef public object _log_limiter
