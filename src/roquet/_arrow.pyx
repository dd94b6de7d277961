# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Records of the CommitLog to the buffers of Arrow columns, in one pass.

Owns no format: the layout is that of format/commit_log.py. A record is read once; only columns
that were asked for are written, and a row that the selection does not take leaves no trace. Text
that is not plain (not UTF-8, a property named twice, IPv6) is handed to the functions of the
reference path, so that both always agree.

Nothing here knows Arrow itself: :class:`Block` has addresses, and spark/log/decoder.py makes arrays
of them. A block is used again when nothing refers to it any more, because fresh memory costs more
than everything else.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset


cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(object o)


cdef extern from "<string.h>":
    void *memmem(const void *where, size_t size, const void *what, size_t what_size) nogil


cdef extern from "_crc32.h":
    void roquet_crc32_init() nogil
    uint32_t roquet_crc32(const unsigned char *data, size_t size) nogil


cdef extern from "_bytes.h":
    uint32_t roquet_get32(const unsigned char *at) nogil
    uint64_t roquet_get64(const unsigned char *at) nogil


cdef extern from "_utf8.h":
    bint roquet_is_utf8(const unsigned char *at, size_t size) nogil


cdef enum:
    MAGIC_V1 = 0xDAA320A7
    MAGIC_V2 = 0xDAA320AB
    MAGIC_BLANK = 0xCBD43194
    CRC_MASK = 0x7FFFFFFF
    RECORD_MIN = 91
    END_OF_SEGMENT = 8
    CRC_PROPERTY = 20
    BORN_HOST_AT = 48
    COMPRESSED = 1
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    PAIRS_MAX = 64
    HOST_TEXT_MAX = 64
    # What follows a body at most: two lengths, the longest topic, the longest properties.
    BEHIND_BODY_MAX = 2 + 65535 + 2 + 32767

# The years 1 to 9999, which is what Spark's timestamps can be.
cdef int64_t TIMESTAMP_MIN_MS = -62135596800000
cdef int64_t TIMESTAMP_MAX_MS = 253402300799999

cdef enum:
    F_QUEUE_ID = 0
    F_STORE_SIZE
    F_RECONSUME
    F_SYS_FLAG
    F_FLAG
    F_BODY_CRC
    F_QUEUE_OFFSET
    F_PHYSICAL
    F_PREPARED
    F_BORN
    F_STORE
    FIXED
    V_TOPIC = 0
    V_BODY
    V_TAGS
    V_KEYS
    V_MSG_ID
    V_OFFSET_ID
    V_BORN_HOST
    V_STORE_HOST
    V_NAMES
    V_VALUES
    VARYING

FIXED_NAMES = (
    "queueId", "storeSize", "reconsumeTimes", "sysFlag", "flag", "bodyCrc",
    "queueOffset", "physicalOffset", "preparedTransactionOffset",
    "bornTimestamp", "storeTimestamp",
)
VARYING_NAMES = (
    "topic", "body", "tags", "keys", "msgId", "offsetMsgId", "bornHost", "storeHost",
)
MAP_NAME = "properties"

ENDED, FULL, BLANK, FAULT, MORE = range(5)

roquet_crc32_init()


cdef struct Text:
    const unsigned char *at
    Py_ssize_t size


cdef struct Pair:
    Text name
    Text value


cdef struct Fixed:
    # Four bytes a row up to F_BODY_CRC, eight behind it.
    bint wanted
    unsigned char *at
    uint8_t *valid
    int64_t nulls


cdef struct Varying:
    bint wanted
    int32_t *offsets
    Py_ssize_t offsets_room
    unsigned char *at
    size_t used
    size_t room
    Py_ssize_t count
    uint8_t *valid
    int64_t nulls


cdef struct Layout:
    uint32_t size
    uint32_t sys_flag
    const unsigned char *born_host
    int born_host_bytes
    const unsigned char *store_host
    int store_host_bytes
    int64_t store_ms
    Text body
    Text topic
    Text properties


cdef struct HostText:
    unsigned char host[20]
    int host_bytes
    char text[HOST_TEXT_MAX]
    int size


cdef class Block:
    """The columns of one batch; see the module."""

    cdef Fixed fixed_[FIXED]
    cdef Varying varying_[VARYING]
    cdef int32_t *map_offsets
    cdef bint wants_map
    cdef Py_ssize_t rows_room
    cdef readonly Py_ssize_t rows
    cdef readonly list compressed

    def __cinit__(self, columns, Py_ssize_t rows_room):
        cdef int i
        memset(self.fixed_, 0, sizeof(self.fixed_))
        memset(self.varying_, 0, sizeof(self.varying_))
        self.rows_room = rows_room
        for i in range(FIXED):
            if FIXED_NAMES[i] in columns:
                self.fixed_[i].wanted = True
                self.fixed_[i].at = <unsigned char *>_take(rows_room * (4 if i <= F_BODY_CRC else 8))
                self.fixed_[i].valid = <uint8_t *>_take((rows_room + 7) // 8)
        self.wants_map = MAP_NAME in columns
        if self.wants_map:
            self.map_offsets = <int32_t *>_take((rows_room + 1) * 4)
        for i in range(VARYING):
            if i >= V_NAMES:
                self.varying_[i].wanted = self.wants_map
            else:
                self.varying_[i].wanted = VARYING_NAMES[i] in columns
            if self.varying_[i].wanted:
                self.varying_[i].offsets_room = rows_room + 1
                self.varying_[i].offsets = <int32_t *>_take((rows_room + 1) * 4)
                self.varying_[i].valid = <uint8_t *>_take((rows_room + 7) // 8)
        self.clear()

    def __dealloc__(self):
        cdef int i
        for i in range(FIXED):
            free(self.fixed_[i].at)
            free(self.fixed_[i].valid)
        for i in range(VARYING):
            free(self.varying_[i].offsets)
            free(self.varying_[i].at)
            free(self.varying_[i].valid)
        free(self.map_offsets)

    cdef void clear(self):
        cdef int i
        self.rows = 0
        self.compressed = []
        for i in range(FIXED):
            self.fixed_[i].nulls = 0
            if self.fixed_[i].wanted:
                memset(self.fixed_[i].valid, 0xFF, (self.rows_room + 7) // 8)
        for i in range(VARYING):
            self.varying_[i].nulls = 0
            self.varying_[i].used = 0
            self.varying_[i].count = 0
            if self.varying_[i].wanted:
                self.varying_[i].offsets[0] = 0
                memset(self.varying_[i].valid, 0xFF, (self.rows_room + 7) // 8)
        if self.wants_map:
            self.map_offsets[0] = 0

    def fixed(self, name):
        """Nulls, address of validity, address of values, bytes of values."""
        cdef Fixed *column = &self.fixed_[FIXED_NAMES.index(name)]
        cdef int width = 4 if FIXED_NAMES.index(name) <= F_BODY_CRC else 8
        return column.nulls, <size_t>column.valid, <size_t>column.at, self.rows * width

    def varying(self, name):
        """Nulls, address of validity, address of offsets, address of data, bytes of data."""
        return _parts(&self.varying_[VARYING_NAMES.index(name)])

    def entries(self):
        """Address of the map's offsets, number of pairs, then names and values as varying."""
        return (
            <size_t>self.map_offsets,
            self.varying_[V_NAMES].count,
            _parts(&self.varying_[V_NAMES]),
            _parts(&self.varying_[V_VALUES]),
        )

    cdef int put32(self, int column, int32_t value) except -1:
        (<int32_t *>self.fixed_[column].at)[self.rows] = value
        return 0

    cdef int put64(self, int column, int64_t value) except -1:
        (<int64_t *>self.fixed_[column].at)[self.rows] = value
        return 0

    cdef int put_ms(self, int column, int64_t value) except -1:
        if TIMESTAMP_MIN_MS <= value <= TIMESTAMP_MAX_MS:
            (<int64_t *>self.fixed_[column].at)[self.rows] = value * 1000
        else:
            (<int64_t *>self.fixed_[column].at)[self.rows] = 0
            self.fixed_[column].valid[self.rows >> 3] &= ~(1 << (self.rows & 7))
            self.fixed_[column].nulls += 1
        return 0

    cdef int put_text(self, int column, const unsigned char *at, Py_ssize_t size) except -1:
        cdef Varying *out = &self.varying_[column]
        cdef size_t room
        cdef void *grown
        if out.used + size > out.room:
            room = max(out.used + size, 2 * out.room, <size_t>65536)
            grown = realloc(out.at, room)
            if grown == NULL:
                raise MemoryError
            out.at = <unsigned char *>grown
            out.room = room
        if out.count + 2 > out.offsets_room:
            grown = realloc(out.offsets, 2 * out.offsets_room * 4)
            if grown == NULL:
                raise MemoryError
            out.offsets = <int32_t *>grown
            out.offsets_room *= 2
        if size > 0:
            memcpy(out.at + out.used, at, size)
        out.used += size
        if out.used > 0x7FFFFFFF:
            raise OverflowError("a column of a batch has more than 2 GiB")
        out.count += 1
        out.offsets[out.count] = <int32_t>out.used
        return 0

    cdef int put_null(self, int column) except -1:
        self.put_text(column, NULL, 0)
        self.varying_[column].valid[self.rows >> 3] &= ~(1 << (self.rows & 7))
        self.varying_[column].nulls += 1
        return 0

    cdef int put_object(self, int column, object text) except -1:
        cdef bytes data
        if text is None:
            return self.put_null(column)
        data = (<str>text).encode("utf-8")
        return self.put_text(column, data, len(data))


cdef void *_take(size_t size) except NULL:
    cdef void *at = malloc(max(size, <size_t>8))
    if at == NULL:
        raise MemoryError
    return at


cdef tuple _parts(Varying *column):
    return (
        column.nulls, <size_t>column.valid, <size_t>column.offsets, <size_t>column.at, column.used
    )


# -- one record ----------------------------------------------------------------------------------


cdef inline uint32_t get16(const unsigned char *at) noexcept nogil:
    return (<uint32_t>at[0] << 8) | at[1]


cdef int lay_out(const unsigned char *at, int64_t room, int64_t rest, Layout *out) noexcept nogil:
    """Find the parts of the record at ``at``; ``room`` bytes are in memory, ``rest`` in the file."""
    cdef uint32_t magic
    cdef int64_t size, body_at, body_bytes, topic_at, properties_at
    cdef int length_bytes
    if rest < END_OF_SEGMENT:
        return FAULT_
    if room < END_OF_SEGMENT:
        return MORE_
    size = <int32_t>roquet_get32(at)
    magic = roquet_get32(at + 4)
    if magic == MAGIC_BLANK:
        return BLANK_
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return FAULT_
    if size < RECORD_MIN or size > rest:
        return FAULT_
    if room < RECORD_MIN:
        return MORE_
    out.size = <uint32_t>size
    out.sys_flag = roquet_get32(at + 36)
    out.born_host_bytes = 20 if out.sys_flag & BORN_V6 else 8
    out.store_host_bytes = 20 if out.sys_flag & STORE_V6 else 8
    body_at = BORN_HOST_AT + out.born_host_bytes + 8 + out.store_host_bytes + 16
    if body_at > size:
        return FAULT_
    if room < body_at:
        return MORE_
    out.born_host = at + BORN_HOST_AT
    out.store_ms = <int64_t>roquet_get64(out.born_host + out.born_host_bytes)
    out.store_host = out.born_host + out.born_host_bytes + 8
    body_bytes = <int32_t>roquet_get32(at + body_at - 4)
    length_bytes = 2 if magic == MAGIC_V2 else 1
    topic_at = body_at + body_bytes + length_bytes
    if body_bytes < 0 or topic_at + 2 > size or size - body_at - body_bytes > BEHIND_BODY_MAX:
        return FAULT_
    if room < size:
        return MORE_
    out.body.at = at + body_at
    out.body.size = body_bytes
    out.topic.at = at + topic_at
    out.topic.size = get16(at + topic_at - 2) if length_bytes == 2 else at[topic_at - 1]
    properties_at = topic_at + out.topic.size + 2
    if properties_at > size:
        return FAULT_
    out.properties.at = at + properties_at
    out.properties.size = get16(at + properties_at - 2)
    if out.properties.size > 32767 or properties_at + out.properties.size != size:
        return FAULT_
    return GOOD_


cdef enum:
    GOOD_ = -1
    ENDED_ = 0
    FULL_ = 1
    BLANK_ = 2
    FAULT_ = 3
    MORE_ = 4


cdef inline bint is_numbered(const unsigned char *at, int64_t physical_offset) noexcept nogil:
    """Whether a record says where it is, if that is known, and its place in its queue is one."""
    return (
        (physical_offset < 0 or <int64_t>roquet_get64(at + 28) == physical_offset)
        and <int32_t>roquet_get32(at + 12) >= 0
        and <int64_t>roquet_get64(at + 20) >= 0
    )


cdef bint has_crc_property(const Text *properties) noexcept nogil:
    if properties.size < CRC_PROPERTY:
        return False
    return memcmp(properties.at + properties.size - CRC_PROPERTY, b"__CRC32#\x01", 9) == 0


cdef inline bint is_name(const Text *name, const char *word, Py_ssize_t size) noexcept nogil:
    return name.size == size and memcmp(name.at, word, size) == 0


cdef int split_pairs(const Text *properties, Pair *pairs) noexcept nogil:
    """The pairs of a property string, or -1 if they need the reference path."""
    cdef const unsigned char *at = properties.at
    cdef const unsigned char *end = at + properties.size
    cdef const unsigned char *stop
    cdef const unsigned char *middle
    cdef int count = 0
    cdef int i
    if not roquet_is_utf8(at, properties.size):
        return -1
    while at < end:
        stop = <const unsigned char *>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        middle = <const unsigned char *>memchr(at, 1, stop - at)
        if middle != NULL and middle > at and middle + 1 < stop:
            if count == PAIRS_MAX:
                return -1
            pairs[count].name.at = at
            pairs[count].name.size = middle - at
            pairs[count].value.at = middle + 1
            pairs[count].value.size = stop - middle - 1
            for i in range(count):
                if is_name(&pairs[i].name, <const char *>at, middle - at):
                    return -1
            count += 1
        at = stop + 1
    return count


cdef Py_ssize_t put_hex(const unsigned char *at, int size, unsigned char *out) noexcept nogil:
    cdef const char *digits = b"0123456789ABCDEF"
    cdef int i
    for i in range(size):
        out[2 * i] = digits[at[i] >> 4]
        out[2 * i + 1] = digits[at[i] & 15]
    return 2 * size


cdef class Decoder:
    """Turns records into blocks.

    Args:
        columns: Names of the columns to write.
        rows_max: Rows of a block at most.
        bytes_max: A block ends with the record that reaches this many bytes.
        check_crc: Whether bodies are checked.
        takes_topic: Tells of a topic's name whether its rows are wanted; ``None`` for all.
        queue_ids: The queues whose rows are wanted; empty for all.
        key_bytes: Words of which one must be in a row's properties before ``takes_keys`` is asked.
        takes_keys: Tells of a row's properties whether it is wanted.
        store_from_ms: Rows stored before this are not wanted.
        store_to_ms: Rows stored at or after this are not wanted.
        is_good: The reference path's judgement of a record with a CRC property.
        read_properties: The reference path's reading of a property string.
        read_host: The reference path's text of a packed host.
    """

    cdef object _columns
    cdef Py_ssize_t _rows_max
    cdef Py_ssize_t _bytes_max
    cdef bint _check_crc
    cdef object _takes_topic
    cdef dict _topics
    cdef bytes _last_topic
    cdef bint _last_taken
    cdef int32_t *_queue_ids
    cdef Py_ssize_t _queue_count
    cdef tuple _key_bytes
    cdef object _takes_keys
    cdef int64_t _from_ms
    cdef int64_t _to_ms
    cdef object _is_good
    cdef object _read_properties
    cdef object _read_host
    cdef list _pool
    cdef bint _wants_properties
    cdef HostText _born
    cdef HostText _store

    def __cinit__(
        self, *, columns, rows_max, bytes_max, check_crc, takes_topic, queue_ids, key_bytes,
        takes_keys, store_from_ms, store_to_ms, is_good, read_properties, read_host,
    ):
        cdef Py_ssize_t i
        self._columns = frozenset(columns)
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._check_crc = check_crc
        self._takes_topic = takes_topic
        self._topics = {}
        self._last_topic = b""
        queues = sorted(queue_ids)
        self._queue_count = len(queues)
        self._queue_ids = <int32_t *>_take(max(len(queues), 1) * 4)
        for i in range(self._queue_count):
            self._queue_ids[i] = queues[i]
        self._key_bytes = tuple(key_bytes)
        self._takes_keys = takes_keys
        self._from_ms = store_from_ms
        self._to_ms = store_to_ms
        self._is_good = is_good
        self._read_properties = read_properties
        self._read_host = read_host
        self._pool = []
        self._wants_properties = not self._columns.isdisjoint(("tags", "keys", "msgId", MAP_NAME))
        self._born.host_bytes = self._store.host_bytes = 0

    def __dealloc__(self):
        free(self._queue_ids)

    def decode(
        self, data, Py_ssize_t position, int64_t stop, int64_t end, int64_t base
    ):
        """Decode the records that start at ``position`` of ``data`` and in front of ``stop``.

        Args:
            data: Bytes of a segment.
            position: Where the first record starts in them.
            stop: Position at which no further record is started.
            end: Position where the segment, or its confirmed part, ends; beyond ``data`` perhaps.
            base: Physical offset of the first byte of ``data``; -1 when the records come from
                several places, as in the answer to a pull.

        Returns:
            The block, the position that was reached, and why: ENDED, FULL, BLANK (the segment ends
            here), FAULT (no good record here), MORE (the record is not whole in ``data``).
        """
        cdef Py_buffer view
        cdef Block block = self._block()
        cdef Py_ssize_t reached
        cdef int why
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            reached = position
            why = self._decode(<const unsigned char *>view.buf, view.len, &reached, stop, end, base, block)
        finally:
            PyBuffer_Release(&view)
        return block, reached, why

    cdef Block _block(self):
        """A block that nothing refers to, or a new one."""
        cdef Block block
        for i in range(len(self._pool)):
            block = self._pool[i]
            if Py_REFCNT(block) == 2:
                block.clear()
                return block
        block = Block(self._columns, self._rows_max)
        self._pool.append(block)
        return block

    cdef int _decode(
        self, const unsigned char *data, Py_ssize_t size, Py_ssize_t *position, int64_t stop,
        int64_t end, int64_t base, Block block,
    ) except -2:
        cdef Py_ssize_t at = position[0]
        cdef Py_ssize_t bytes_taken = 0
        cdef Layout record
        cdef int found
        while at < stop and at < end:
            if block.rows == self._rows_max or bytes_taken >= self._bytes_max:
                position[0] = at
                return FULL_
            found = lay_out(data + at, size - at, end - at, &record)
            if found == GOOD_ and not self._is_sound(data + at, base + at if base >= 0 else -1, &record):
                found = FAULT_
            if found != GOOD_:
                position[0] = at
                return found
            if self._takes(data + at, &record):
                self._put(data + at, &record, block)
                bytes_taken += record.size
            at += record.size
        position[0] = at
        return ENDED_

    cdef bint _is_sound(
        self, const unsigned char *at, int64_t physical_offset, const Layout *record
    ) except -1:
        """What the reference path checks beyond the lengths."""
        if not is_numbered(at, physical_offset):
            return False
        if record.topic.size == 0 or memchr(record.topic.at, 0, record.topic.size) != NULL:
            return False
        if not roquet_is_utf8(record.topic.at, record.topic.size):
            return False
        if not self._check_crc:
            return True
        if roquet_crc32(record.body.at, record.body.size) & CRC_MASK != roquet_get32(at + 8):
            return False
        if has_crc_property(&record.properties):
            return self._is_good(
                PyBytes_FromStringAndSize(<const char *>at, record.size), physical_offset
            )
        return True

    cdef bint _takes(self, const unsigned char *at, const Layout *record) except -1:
        cdef Py_ssize_t i
        cdef int32_t queue_id
        if not self._from_ms <= record.store_ms < self._to_ms:
            return False
        if self._queue_count:
            queue_id = <int32_t>roquet_get32(at + 12)
            for i in range(self._queue_count):
                if self._queue_ids[i] == queue_id:
                    break
            else:
                return False
        if self._takes_topic is not None and not self._takes_topic_of(&record.topic):
            return False
        if self._key_bytes:
            if not self._may_have_key(&record.properties):
                return False
            text = PyBytes_FromStringAndSize(
                <const char *>record.properties.at, record.properties.size
            )
            return self._takes_keys(self._read_properties(text))
        return True

    cdef bint _may_have_key(self, const Text *properties) except -1:
        """Whether one of the words is anywhere in a property string."""
        cdef bytes key
        for key in self._key_bytes:
            if memmem(properties.at, properties.size, <const char *>key, len(key)) != NULL:
                return True
        return False

    cdef bint _takes_topic_of(self, const Text *topic) except -1:
        if (
            len(self._last_topic) == topic.size
            and memcmp(<const char *>self._last_topic, topic.at, topic.size) == 0
        ):
            return self._last_taken
        name = PyBytes_FromStringAndSize(<const char *>topic.at, topic.size)
        taken = self._topics.get(name)
        if taken is None:
            taken = self._topics[name] = bool(self._takes_topic(name.decode("utf-8")))
        self._last_topic = name
        self._last_taken = taken
        return taken

    # -- writing a row ---------------------------------------------------------------------------

    cdef int _put(self, const unsigned char *at, const Layout *record, Block block) except -1:
        cdef Fixed *fixed = block.fixed_
        cdef Varying *varying = block.varying_
        if fixed[F_QUEUE_ID].wanted:
            block.put32(F_QUEUE_ID, <int32_t>roquet_get32(at + 12))
        if fixed[F_STORE_SIZE].wanted:
            block.put32(F_STORE_SIZE, <int32_t>record.size)
        if fixed[F_SYS_FLAG].wanted:
            block.put32(F_SYS_FLAG, <int32_t>record.sys_flag)
        if fixed[F_FLAG].wanted:
            block.put32(F_FLAG, <int32_t>roquet_get32(at + 16))
        if fixed[F_BODY_CRC].wanted:
            block.put32(F_BODY_CRC, <int32_t>roquet_get32(at + 8))
        if fixed[F_QUEUE_OFFSET].wanted:
            block.put64(F_QUEUE_OFFSET, <int64_t>roquet_get64(at + 20))
        if fixed[F_PHYSICAL].wanted:
            block.put64(F_PHYSICAL, <int64_t>roquet_get64(at + 28))
        if fixed[F_RECONSUME].wanted:
            block.put32(F_RECONSUME, <int32_t>roquet_get32(record.body.at - 16))
        if fixed[F_PREPARED].wanted:
            block.put64(F_PREPARED, <int64_t>roquet_get64(record.body.at - 12))
        if fixed[F_BORN].wanted:
            block.put_ms(F_BORN, <int64_t>roquet_get64(at + 40))
        if fixed[F_STORE].wanted:
            block.put_ms(F_STORE, record.store_ms)
        if varying[V_TOPIC].wanted:
            block.put_text(V_TOPIC, record.topic.at, record.topic.size)
        if varying[V_BODY].wanted:
            block.put_text(V_BODY, record.body.at, record.body.size)
            if record.sys_flag & COMPRESSED:
                block.compressed.append((block.rows, <int32_t>record.sys_flag))
        if varying[V_OFFSET_ID].wanted:
            self._put_offset_id(V_OFFSET_ID, at, record, block)
        if varying[V_BORN_HOST].wanted:
            self._put_host(V_BORN_HOST, record.born_host, record.born_host_bytes, &self._born, block)
        if varying[V_STORE_HOST].wanted:
            self._put_host(
                V_STORE_HOST, record.store_host, record.store_host_bytes, &self._store, block
            )
        if self._wants_properties:
            self._put_properties(at, record, block)
        block.rows += 1
        return 0

    cdef int _put_offset_id(
        self, int column, const unsigned char *at, const Layout *record, Block block
    ) except -1:
        cdef unsigned char text[56]
        cdef Py_ssize_t size = put_hex(record.store_host, record.store_host_bytes, text)
        size += put_hex(at + 28, 8, text + size)
        return block.put_text(column, text, size)

    cdef int _put_host(
        self, int column, const unsigned char *host, int host_bytes, HostText *last, Block block
    ) except -1:
        if last.host_bytes != host_bytes or memcmp(last.host, host, host_bytes) != 0:
            if host_bytes == 8:
                last.size = snprintf(
                    last.text, HOST_TEXT_MAX, b"%d.%d.%d.%d:%d", <int>host[0], <int>host[1],
                    <int>host[2], <int>host[3], <int>(<int32_t>roquet_get32(host + 4)),
                )
            else:
                made = self._read_host(
                    PyBytes_FromStringAndSize(<const char *>host, host_bytes)
                ).encode("utf-8")
                last.size = len(made)
                assert last.size <= HOST_TEXT_MAX
                memcpy(last.text, <const char *>made, last.size)
            memcpy(last.host, host, host_bytes)
            last.host_bytes = host_bytes
        return block.put_text(column, <unsigned char *>last.text, last.size)

    cdef int _put_properties(
        self, const unsigned char *at, const Layout *record, Block block
    ) except -1:
        cdef Pair pairs[PAIRS_MAX]
        cdef const Text *tags = NULL
        cdef const Text *keys = NULL
        cdef const Text *unique = NULL
        cdef int count = split_pairs(&record.properties, pairs)
        cdef int i
        if count < 0:
            return self._put_slowly(at, record, block)
        for i in range(count):
            if is_name(&pairs[i].name, b"TAGS", 4):
                tags = &pairs[i].value
            elif is_name(&pairs[i].name, b"KEYS", 4):
                keys = &pairs[i].value
            elif is_name(&pairs[i].name, b"UNIQ_KEY", 8):
                unique = &pairs[i].value
        if block.varying_[V_TAGS].wanted:
            put_found(block, V_TAGS, tags)
        if block.varying_[V_KEYS].wanted:
            put_found(block, V_KEYS, keys)
        if block.varying_[V_MSG_ID].wanted:
            if unique == NULL:
                self._put_offset_id(V_MSG_ID, at, record, block)
            else:
                put_found(block, V_MSG_ID, unique)
        if block.wants_map:
            for i in range(count):
                block.put_text(V_NAMES, pairs[i].name.at, pairs[i].name.size)
                block.put_text(V_VALUES, pairs[i].value.at, pairs[i].value.size)
            block.map_offsets[block.rows + 1] = <int32_t>block.varying_[V_NAMES].count
        return 0

    cdef int _put_slowly(
        self, const unsigned char *at, const Layout *record, Block block
    ) except -1:
        """The same by the reference path."""
        cdef dict found = self._read_properties(
            PyBytes_FromStringAndSize(<const char *>record.properties.at, record.properties.size)
        )
        if block.varying_[V_TAGS].wanted:
            block.put_object(V_TAGS, found.get("TAGS"))
        if block.varying_[V_KEYS].wanted:
            block.put_object(V_KEYS, found.get("KEYS"))
        if block.varying_[V_MSG_ID].wanted:
            if "UNIQ_KEY" in found:
                block.put_object(V_MSG_ID, found["UNIQ_KEY"])
            else:
                self._put_offset_id(V_MSG_ID, at, record, block)
        if block.wants_map:
            for name, value in found.items():
                block.put_object(V_NAMES, name)
                block.put_object(V_VALUES, value)
            block.map_offsets[block.rows + 1] = <int32_t>block.varying_[V_NAMES].count
        return 0


cdef int put_found(Block block, int column, const Text *found) except -1:
    if found == NULL:
        return block.put_null(column)
    return block.put_text(column, found.at, found.size)


def walk(data, Py_ssize_t position, int64_t stop, int64_t end, int64_t base, *, Py_ssize_t records_max):
    """Step from record to record by their sizes.

    Args:
        data: Bytes of a segment.
        position: Where the first record starts in them.
        stop: Position at which no further record is started.
        end: Position where the segment, or its confirmed part, ends; beyond ``data`` perhaps.
        base: Physical offset of the first byte of ``data``.
        records_max: Records to step over at most.

    Returns:
        Records, the position that was reached, and why; see :meth:`Decoder.decode`.
    """
    cdef Py_buffer view
    cdef Layout record
    cdef Py_ssize_t records = 0
    cdef int why = ENDED_
    cdef const unsigned char *at
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        at = <const unsigned char *>view.buf
        with nogil:
            while position < stop and position < end:
                if records == records_max:
                    why = FULL_
                    break
                why = lay_out(at + position, view.len - position, end - position, &record)
                if why == GOOD_ and not is_numbered(at + position, base + position):
                    why = FAULT_
                if why != GOOD_:
                    break
                why = ENDED_
                records += 1
                position += record.size
    finally:
        PyBuffer_Release(&view)
    return records, position, why
