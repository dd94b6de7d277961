"""What the compiled lane of the wire (``_wire.pyx``) uses of the compiled lane of the store."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


cdef enum:
    KEYS_MAX = 32
    DELAY_LEVELS_MAX = 64


cdef struct Text:
    const unsigned char *at
    Py_ssize_t size


cdef struct Properties:
    Text tags
    Text keys
    Text unique
    Text delay
    bint is_plain


cdef struct Record:
    uint32_t size
    int32_t queue_id
    int64_t queue_offset
    uint32_t sys_flag
    int64_t store_timestamp_ms
    Text topic
    bint is_delayed
    Properties properties


cdef struct Host:
    unsigned char ip[4]
    int32_t port


cdef struct Keys:
    uint32_t count
    uint32_t hashes[KEYS_MAX]


cdef struct IndexTarget:
    unsigned char *at
    uint32_t slots
    uint32_t entries


cdef struct Message:
    # A message that is plain; the broker's own properties are written behind the client's.
    int32_t queue_id
    int32_t flag
    uint32_t sys_flag
    int32_t reconsume_times
    int64_t born_ms
    int64_t prepared_offset
    Host born_host
    Host store_host
    Text body
    Text properties
    Text own_properties
    Properties found


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


cdef bint is_ascii(const unsigned char *at, Py_ssize_t size) noexcept nogil
cdef uint32_t java_hash(uint32_t start, const unsigned char *at, Py_ssize_t size) noexcept nogil
cdef bint read_record(
    const unsigned char *at, Py_ssize_t room, int64_t physical_offset, bint check_crc, Record *out
) noexcept nogil


cdef class _Queue:
    cdef object queue
    cdef int64_t burst
    cdef int64_t next_offset
    cdef int64_t max_physical_offset
    cdef unsigned char *units
    cdef Py_ssize_t used
    cdef Py_ssize_t room

    cdef bint load(self, int64_t burst, bint dispatch) except -1
    cdef int reserve(self, Py_ssize_t count) except -1
    cdef void add(self, int64_t physical_offset, uint32_t size, int64_t tags_code) noexcept
    cdef int store(self, list touched) except -1


cdef class _Topic:
    cdef bytes name
    cdef dict table
    cdef dict queues
    cdef uint32_t hash_
    cdef int64_t burst
    cdef bint is_delayed

    cdef _Queue queue(self, int32_t queue_id)


cdef class Lane:
    cdef object _log
    cdef object _queues
    cdef object _index
    cdef object _dispatcher
    cdef Py_ssize_t _max_body
    cdef int64_t _delays_ms[DELAY_LEVELS_MAX]
    cdef int _delay_levels
    cdef dict _topics
    cdef int64_t _burst
    cdef list _loaded
    cdef object _last_name
    cdef _Topic _last_topic
    cdef object _segment
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
    cdef _Queue _queue(self, _Topic topic, int32_t queue_id, bint dispatch)
    cdef bint _append_one(
        self, object message, Target *target, int64_t *queue_offset, int64_t *physical_offset
    ) except -1
    cdef bint _redispatch_one(self, Record *record, int64_t offset, Target *target) except -1
