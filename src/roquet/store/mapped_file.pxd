"""C types of what ``mapped_file.py`` keeps."""

from libc.stdint cimport int64_t


cdef class MappedFile:
    cdef object _files
    cdef int _fd
    cdef int64_t _address
    cdef public Py_ssize_t committed
    cdef public Py_ssize_t data_end
    cdef public Py_ssize_t flushed
    cdef public Py_ssize_t populated
    cdef public Py_ssize_t size_bytes
    cdef public Py_ssize_t wrote
    cdef public bint has_blocks
    cdef public int64_t start_offset
    cdef public int64_t store_timestamp_ms
    cdef public object mapping
    cdef public object path
    cdef public object view
    cdef public object write_buffer

    cpdef moved_to(self, Py_ssize_t position)
