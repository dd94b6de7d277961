"""The part of the store's append that the hot path uses."""

from libc.stdint cimport int32_t, int64_t, uint32_t

from roquet.format._derived cimport Keys
from roquet.format._record cimport Message, Properties, Record
from roquet.store._consume_queue cimport BurstQueue
from roquet.store._index cimport IndexTarget
from roquet.store.commit_log cimport CommitLog
from roquet.store.consume_queue_store cimport ConsumeQueueStore
from roquet.store.dispatch cimport Dispatcher
from roquet.store.mapped_file cimport MappedFile


cdef enum:
    DELAY_LEVELS_MAX = 64


cdef struct Target:
    # Where the messages of a burst go: the segment, and the index if they are dispatched at once.
    unsigned char *at
    Py_ssize_t size
    Py_ssize_t began
    Py_ssize_t position
    int64_t start_offset
    int64_t now_ms
    bint dispatch
    bint has_index
    IndexTarget index


cdef class _Topic:
    cdef bytes name
    cdef dict table
    cdef dict queues
    cdef uint32_t hash_
    cdef int64_t burst
    cdef bint is_delayed

    cdef BurstQueue queue(self, int32_t queue_id)


cdef class PlainAppender:
    cdef CommitLog _log
    cdef ConsumeQueueStore _queues
    cdef object _index
    cdef Dispatcher _dispatcher
    cdef Py_ssize_t max_body
    cdef int64_t _delays_ms[DELAY_LEVELS_MAX]
    cdef int _delay_levels
    cdef dict _topics
    cdef int64_t _burst
    cdef list _loaded
    cdef object _last_name
    cdef _Topic _last_topic
    cdef MappedFile _segment
    cdef unsigned char[::1] _segment_view
    cdef unsigned char[::1] _index_view
    cdef Keys *_batch_keys
    cdef Py_ssize_t _batch_keys_room

    cdef bint open_target(self, Target *target, int64_t now_ms, bint dispatch) except -1
    cdef int close_target(self, Target *target) except -1
    cdef _Topic topic(self, object name)
    cdef bint append_message(
        self, _Topic topic, const Message *message, Target *target,
        int64_t *queue_offset, int64_t *physical_offset,
    ) except -1
    cdef bint append_batch(
        self, _Topic topic, const Message *messages, Py_ssize_t count, Target *target,
        int64_t *queue_offset, int64_t *physical_offsets,
    ) except -1

    cdef bint _fits(self, const Message *message) noexcept
    cdef Keys *_keys_of(self, Py_ssize_t count) except NULL
    cdef int _note_delays(self, object levels) except -1
    cdef bint _entry_code(
        self, _Topic topic, const Properties *found, int64_t store_ms, int64_t *code
    ) noexcept
    cdef int _begin(self) except -1
    cdef int _end(self) except -1
    cdef bint _index_takes(self, IndexTarget *index, uint32_t count) except -1
    cdef _Topic _any_topic(self, object name)
    cdef _Topic _fresh_topic(self, object topic, _Topic known)
    cdef BurstQueue _queue(self, _Topic topic, int32_t queue_id, bint dispatch)
    cdef bint _append_one(
        self, object message, Target *target, int64_t *queue_offset, int64_t *physical_offset
    ) except -1
    cdef bint _redispatch_one(self, Record *record, int64_t offset, Target *target) except -1
