"""C types of what ``frame.py`` keeps."""

from libc.stdint cimport int64_t


cdef class FrameDecoder:
    cdef public object _buffer
    cdef public int64_t _position
    cdef public list _parts
    cdef public int64_t _parts_bytes
    cdef public int64_t _wanted_bytes
    cdef public int64_t _max_frame_bytes
    cdef public object _error
