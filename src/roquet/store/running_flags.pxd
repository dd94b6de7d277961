"""C types of what ``running_flags.py`` keeps."""


cdef class RunningFlags:
    cdef public long _bits
