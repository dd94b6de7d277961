"""C types of what ``mapped_file_queue.py`` keeps."""

cimport cython
from libc.stdint cimport int64_t

from roquet.store.mapped_file cimport MappedFile


cdef class MappedFileQueue:
    cdef object _files
    cdef public object root
    cdef public Py_ssize_t size_bytes
    cdef public list segments
    cdef public bint has_buffers
    cdef list _unused

    @cython.locals(last=MappedFile)
    cpdef int64_t max_wrote_offset(self)
    @cython.locals(first=MappedFile, index=int64_t)
    cpdef MappedFile find(self, int64_t physical_offset)
