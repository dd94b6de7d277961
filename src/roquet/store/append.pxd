"""C types of what ``append.py`` keeps."""

from roquet.store.commit_log cimport CommitLog
from roquet.store.dispatch cimport Dispatcher


cdef class Appender:
    cdef public CommitLog _log
    cdef public object _queues
    cdef public Dispatcher _dispatcher
    cdef public object compiled
