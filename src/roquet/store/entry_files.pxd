"""C types of what ``entry_files.py`` keeps."""

from libc.stdint cimport int64_t


cdef class EntryFiles:
    cdef public object _files
    cdef public object _descriptors
    cdef public object _last_path
    cdef public int64_t _torn
    cdef public int64_t _unsynced_bytes
    cdef public int64_t dirty_bytes
    cdef public object entries_a_file
    cdef public int64_t file_bytes
    cdef public object reading
    cdef public int64_t reading_start
    cdef public object root
    cdef public list starts
    cdef public object tail
    cdef public int64_t tail_start
    cdef public int64_t unit_bytes
