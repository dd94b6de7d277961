# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled lane: the hot, ordinary cases of append, dispatch, recovery and reading.

Owns nothing. It works on the objects of the reference path (``MappedFile``, ``ConsumeQueue``,
``IndexFile``) and writes the bytes they would write. Whatever is not plain it leaves untouched
for the reference path: transactions, delayed messages, records with a CRC property, topics or
keys that are not ASCII, V2 records, a record that does not fit its segment, a full index file.

Plain record: magic V1, no transaction, topic and TAGS, KEYS, UNIQ_KEY in ASCII. The layouts are
those of format/commit_log.py, format/consume_queue.py and format/index_file.py.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyUnicode_IS_ASCII(object text)


cdef extern from "_crc32.h":
    void roquet_crc32_init() nogil
    uint32_t roquet_crc32(const unsigned char *data, size_t size) nogil
    uint32_t roquet_get32(const unsigned char *at) nogil
    uint64_t roquet_get64(const unsigned char *at) nogil
    void roquet_put32(unsigned char *at, uint32_t value) nogil
    void roquet_put64(unsigned char *at, uint64_t value) nogil
    void roquet_prefetch(const unsigned char *at) nogil
    void roquet_publish(unsigned char *at, uint32_t size, uint32_t magic) nogil


cdef enum:
    MAGIC_V1 = 0xDAA320A7
    MAGIC_BLANK = 0xCBD43194
    CRC_MASK = 0x7FFFFFFF
    RECORD_MIN = 91
    END_OF_SEGMENT = 8
    UNIT = 20
    INDEX_HEADER = 40
    PROPERTIES_MAX = 32767
    TOPIC_MAX = 127
    BORN_HOST_AT = 48
    TRANSACTION = 0xC
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    KEYS_MAX = 32

roquet_crc32_init()


cdef struct Text:
    const unsigned char *at
    Py_ssize_t size


cdef struct Properties:
    Text tags
    Text keys
    Text unique
    bint is_plain


cdef struct Record:
    uint32_t size
    int32_t queue_id
    int64_t queue_offset
    uint32_t sys_flag
    int64_t store_timestamp_ms
    Text topic
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


# -- text ----------------------------------------------------------------------------------------


cdef inline bint is_ascii(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef unsigned char seen = 0
    for i in range(size):
        seen |= at[i]
    return seen < 0x80


cdef inline uint32_t java_hash(uint32_t start, const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """Java's string hash of ASCII, continued from ``start``."""
    cdef Py_ssize_t i
    for i in range(size):
        start = 31 * start + at[i]
    return start


cdef void read_properties(const unsigned char *at, Py_ssize_t size, Properties *found) noexcept nogil:
    """Find the properties dispatch needs; the last of a name counts, empty ones do not."""
    cdef const unsigned char *end = at + size
    cdef const unsigned char *pair_end
    found.tags.size = found.keys.size = found.unique.size = 0
    found.is_plain = True
    while at < end:
        pair_end = <const unsigned char *>memchr(at, 2, end - at)
        if pair_end == NULL:
            pair_end = end
        size = pair_end - at
        if size > 5 and at[4] == 1:
            if memcmp(at, b"TAGS", 4) == 0:
                found.tags.at = at + 5
                found.tags.size = size - 5
            elif memcmp(at, b"KEYS", 4) == 0:
                found.keys.at = at + 5
                found.keys.size = size - 5
        elif size > 9 and at[8] == 1:
            if memcmp(at, b"UNIQ_KEY", 8) == 0:
                found.unique.at = at + 9
                found.unique.size = size - 9
            elif memcmp(at, b"__CRC32#", 8) == 0:
                found.is_plain = False
        at = pair_end + 1
    if not (
        is_ascii(found.tags.at, found.tags.size)
        and is_ascii(found.keys.at, found.keys.size)
        and is_ascii(found.unique.at, found.unique.size)
    ):
        found.is_plain = False


# -- index ---------------------------------------------------------------------------------------


cdef inline uint32_t key_hash(uint32_t topic_hash, const unsigned char *at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t value = java_hash(topic_hash, at, size)
    if value == 0x80000000u:
        return 0
    return 0u - value if value & 0x80000000u else value


cdef bint put_key(IndexTarget *index, uint32_t hash_, int64_t physical_offset, int64_t now_ms) noexcept nogil:
    """IndexFile.put_key; the caller made sure of room."""
    cdef unsigned char *head = index.at
    cdef uint32_t number = roquet_get32(head + 36)
    cdef unsigned char *slot = head + INDEX_HEADER + <size_t>(hash_ % index.slots) * 4
    cdef unsigned char *entry
    cdef int32_t previous = <int32_t>roquet_get32(slot)
    cdef int64_t begin_ms = <int64_t>roquet_get64(head)
    cdef int64_t seconds = 0
    if number == 0:
        number = 1
    if previous <= 0 or previous > <int32_t>number:
        previous = 0
    if begin_ms > 0 and now_ms > begin_ms:
        seconds = (now_ms - begin_ms) // 1000
        if seconds > 0x7FFFFFFF:
            seconds = 0x7FFFFFFF
    entry = head + INDEX_HEADER + <size_t>index.slots * 4 + <size_t>number * 20
    roquet_put32(entry, hash_)
    roquet_put64(entry + 4, <uint64_t>physical_offset)
    roquet_put32(entry + 12, <uint32_t>seconds)
    roquet_put32(entry + 16, <uint32_t>previous)
    roquet_put32(slot, number)
    if number == 1:
        roquet_put64(head, <uint64_t>now_ms)
        roquet_put64(head + 16, <uint64_t>physical_offset)
    roquet_put64(head + 8, <uint64_t>now_ms)
    roquet_put64(head + 24, <uint64_t>physical_offset)
    if previous == 0:
        roquet_put32(head + 32, roquet_get32(head + 32) + 1)
    roquet_put32(head + 36, number + 1)
    return True


cdef bint collect_keys(uint32_t topic_hash, const Properties *found, Keys *keys) noexcept nogil:
    """Hashes of all keys of a record in the order of IndexService.build; false if too many."""
    cdef const unsigned char *at = found.keys.at
    cdef const unsigned char *end = at + found.keys.size
    cdef const unsigned char *stop
    keys.count = 0
    if found.unique.size:
        keys.hashes[keys.count] = key_hash(topic_hash, found.unique.at, found.unique.size)
        keys.count += 1
    while found.keys.size and at < end:
        stop = <const unsigned char *>memchr(at, c" ", end - at)
        if stop == NULL:
            stop = end
        if stop > at:
            if keys.count == KEYS_MAX - 1:
                return False
            keys.hashes[keys.count] = key_hash(topic_hash, at, stop - at)
            keys.count += 1
        at = stop + 1
    if found.tags.size:
        topic_hash = java_hash(topic_hash, <const unsigned char *>b"T#", 2)
        keys.hashes[keys.count] = key_hash(topic_hash, found.tags.at, found.tags.size)
        keys.count += 1
    return True


cdef bint index_has_room(IndexTarget *index, const Keys *keys) noexcept nogil:
    """Whether all keys fit; their slots, which lie anywhere in the file, are fetched meanwhile."""
    cdef uint32_t number = roquet_get32(index.at + 36)
    cdef uint32_t i
    if (number if number else 1) + keys.count > index.entries:
        return False
    for i in range(keys.count):
        roquet_prefetch(index.at + INDEX_HEADER + <size_t>(keys.hashes[i] % index.slots) * 4)
    return True


cdef void index_record(
    IndexTarget *index, const Keys *keys, int64_t offset, int64_t now_ms
) noexcept nogil:
    """IndexService.build for a plain record and a file with room."""
    cdef uint32_t i
    if <int64_t>roquet_get64(index.at + 24) > offset:
        return
    for i in range(keys.count):
        put_key(index, keys.hashes[i], offset, now_ms)


# -- records -------------------------------------------------------------------------------------


cdef bint read_record(
    const unsigned char *at, Py_ssize_t room, int64_t physical_offset, bint check_crc, Record *out
) noexcept nogil:
    """Whether a plain, whole record lies here; false leaves the judgement to the reference."""
    cdef uint32_t size, body_size, sys_flag
    cdef Py_ssize_t store_at, body_at, topic_at, properties_at, properties_size
    if room < RECORD_MIN or roquet_get32(at + 4) != MAGIC_V1:
        return False
    size = roquet_get32(at)
    if size < RECORD_MIN or <Py_ssize_t>size > room:
        return False
    if <int64_t>roquet_get64(at + 28) != physical_offset:
        return False
    out.queue_id = <int32_t>roquet_get32(at + 12)
    out.queue_offset = <int64_t>roquet_get64(at + 20)
    sys_flag = roquet_get32(at + 36)
    if out.queue_id < 0 or out.queue_offset < 0 or sys_flag & TRANSACTION:
        return False
    store_at = BORN_HOST_AT + (20 if sys_flag & BORN_V6 else 8)
    body_at = store_at + 8 + (20 if sys_flag & STORE_V6 else 8) + 16
    if body_at + 3 > <Py_ssize_t>size:
        return False
    body_size = roquet_get32(at + body_at - 4)
    if body_size > size - <uint32_t>body_at - 3:
        return False
    topic_at = body_at + body_size + 1
    out.topic.at = at + topic_at
    out.topic.size = at[topic_at - 1]
    properties_at = topic_at + out.topic.size + 2
    if out.topic.size == 0 or properties_at > <Py_ssize_t>size:
        return False
    properties_size = at[properties_at - 2] << 8 | at[properties_at - 1]
    if properties_size > PROPERTIES_MAX or properties_at + properties_size != <Py_ssize_t>size:
        return False
    if memchr(out.topic.at, 0, out.topic.size) != NULL or not is_ascii(out.topic.at, out.topic.size):
        return False
    if memchr(at + properties_at, 0, properties_size) != NULL:
        return False
    if check_crc and roquet_crc32(at + body_at, body_size) & CRC_MASK != roquet_get32(at + 8):
        return False
    read_properties(at + properties_at, properties_size, &out.properties)
    if not out.properties.is_plain:
        return False
    if out.topic.size == 19 and memcmp(out.topic.at, b"SCHEDULE_TOPIC_XXXX", 19) == 0:
        return False
    out.size = size
    out.sys_flag = sys_flag
    out.store_timestamp_ms = <int64_t>roquet_get64(at + store_at)
    return True


def crc32(const unsigned char[::1] data not None):
    """CRC-32 as ``zlib.crc32`` gives it."""
    if data.shape[0] == 0:
        return 0
    return roquet_crc32(&data[0], data.shape[0])


def walk(const unsigned char[::1] view not None, Py_ssize_t position, Py_ssize_t limit,
         int64_t start_offset, bint check_crc):
    """Pass over plain, whole records from ``position`` on.

    Returns (position of the first record that is not plain, records passed, position of the last
    of them, its store timestamp); the last two are -1 and 0 when none was passed.
    """
    cdef Record record
    cdef int64_t count = 0
    cdef Py_ssize_t last = -1
    cdef int64_t last_ms = 0
    if limit > view.shape[0]:
        limit = view.shape[0]
    with nogil:
        while position < limit and read_record(
            &view[position], limit - position, start_offset + position, check_crc, &record
        ):
            last = position
            last_ms = record.store_timestamp_ms
            count += 1
            position += record.size
    return position, count, last, last_ms


def fits_entry(const unsigned char[::1] record not None, int64_t physical_offset, bytes topic not None,
               int32_t queue_id, int64_t queue_offset, int64_t tags_code):
    """Whether a record is plain, whole, and the one its queue entry speaks of."""
    cdef Record found
    if record.shape[0] == 0 or not read_record(&record[0], record.shape[0], physical_offset, True, &found):
        return False
    return (
        found.size == record.shape[0]
        and found.queue_id == queue_id
        and found.queue_offset == queue_offset
        and found.topic.size == PyBytes_GET_SIZE(topic)
        and memcmp(found.topic.at, PyBytes_AS_STRING(topic), found.topic.size) == 0
        and <int64_t><int32_t>java_hash(0, found.properties.tags.at, found.properties.tags.size) == tags_code
    )


cdef extern from "<unistd.h>":
    Py_ssize_t pwrite(int fd, const void *data, size_t size, int64_t position)


def write_pending(list touched not None, list grown not None):
    """ConsumeQueueStore.write_pending for queues whose tail file is open and has room.

    Takes queues off the end of ``touched`` and adds them to ``grown`` until one is left to the
    reference path, which also gets one whose write failed: writing it again gives the same bytes
    or the error.
    """
    while touched and write_entries(touched[len(touched) - 1]):
        grown.append(touched.pop())


cdef bint write_entries(object queue) except -1:
    """ConsumeQueue.write_pending for the ordinary case."""
    cdef bytearray pending = queue.pending
    cdef Py_ssize_t size = PyByteArray_GET_SIZE(pending)
    cdef object tail = queue._tail
    cdef int64_t max_offset = queue.max_queue_offset
    cdef int64_t position = max_offset * UNIT - <int64_t>queue._tail_start
    cdef int fd
    if size == 0 or tail is None or position + size > <int64_t>queue._file_bytes:
        return False
    fd = tail.fd
    if fd < 0 or pwrite(fd, PyByteArray_AS_STRING(pending), size, position) != size:
        return False
    tail.is_used = True
    queue.dirty_bytes += size
    queue.max_queue_offset = max_offset + size // UNIT
    PyByteArray_Resize(pending, 0)
    return True


# -- the lane ------------------------------------------------------------------------------------


cdef class _Queue:
    """A ConsumeQueue during a burst: its numbers and the entries collected for it."""

    cdef object queue
    cdef int64_t burst
    cdef int64_t next_offset
    cdef int64_t max_physical_offset
    cdef unsigned char *units
    cdef Py_ssize_t used
    cdef Py_ssize_t room

    def __dealloc__(self):
        free(self.units)

    cdef bint load(self, int64_t burst, bint dispatch) except -1:
        """Take the queue's numbers; false if its next entry is not the next append's."""
        cdef bytearray pending
        self.next_offset = self.queue.next_queue_offset
        self.max_physical_offset = self.queue.max_physical_offset
        if dispatch:
            pending = self.queue.pending
            if <int64_t>self.queue.max_queue_offset + len(pending) // UNIT != self.next_offset:
                return False
        self.used = 0
        self.burst = burst
        return True

    cdef int add(self, int64_t physical_offset, uint32_t size, int64_t tags_code) except -1:
        """Collect one entry."""
        cdef unsigned char *unit
        cdef Py_ssize_t room
        cdef void *grown
        if self.used + UNIT > self.room:
            room = self.room * 2 if self.room else 64 * UNIT
            grown = realloc(self.units, room)
            if grown == NULL:
                raise MemoryError
            self.units = <unsigned char *>grown
            self.room = room
        unit = self.units + self.used
        roquet_put64(unit, <uint64_t>physical_offset)
        roquet_put32(unit + 8, size)
        roquet_put64(unit + 12, <uint64_t>tags_code)
        self.used += UNIT
        self.max_physical_offset = physical_offset + size
        return 0

    cdef int store(self, list touched) except -1:
        """Hand numbers and entries to the ConsumeQueue."""
        cdef bytearray pending
        cdef Py_ssize_t before
        self.burst = 0
        self.queue.next_queue_offset = self.next_offset
        if self.used:
            pending = self.queue.pending
            before = PyByteArray_GET_SIZE(pending)
            if before == 0:
                touched.append(self.queue)
            PyByteArray_Resize(pending, before + self.used)
            memcpy(PyByteArray_AS_STRING(pending) + before, self.units, self.used)
            self.queue.max_physical_offset = self.max_physical_offset
            self.used = 0
        return 0


cdef class _Topic:
    """What the lane keeps of a topic: its bytes, its queues, and the hash of ``topic#``."""

    cdef bytes name
    cdef dict table
    cdef dict queues
    cdef uint32_t hash_
    cdef int64_t burst

    cdef _Queue queue(self, int32_t queue_id):
        """A queue that exists, or ``None``."""
        cdef _Queue known = self.queues.get(queue_id)
        cdef object queue
        if known is not None:
            return known
        queue = self.table.get(queue_id)
        if queue is None:
            return None
        known = _Queue.__new__(_Queue)
        known.queue = queue
        self.queues[queue_id] = known
        return known


cdef class Lane:
    """Append and dispatch for one store."""

    cdef object _log
    cdef object _queues
    cdef object _index
    cdef object _dispatcher
    cdef Py_ssize_t _max_body
    cdef dict _topics
    cdef int64_t _burst
    cdef list _loaded
    cdef object _last_name
    cdef _Topic _last_topic
    cdef unsigned char[::1] _index_view

    def __init__(self, commit_log, queues, index, dispatcher, *, Py_ssize_t max_body_bytes):
        """Work on the parts of a store; ``index`` may be ``None``."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._max_body = max_body_bytes
        self._topics = {}
        self._burst = 0
        self._loaded = []
        self._last_name = None
        self._last_topic = None

    cdef int _begin(self) except -1:
        """Start a burst: notes of earlier ones are checked again before they are used."""
        self._burst += 1
        self._loaded.clear()
        self._last_name = None
        self._last_topic = None
        if len(self._topics) > 4096:
            self._topics.clear()
        return 0

    cdef int _end(self) except -1:
        """Hand everything collected to the queues."""
        cdef _Queue queue
        cdef list touched = self._queues.touched
        for queue in self._loaded:
            queue.store(touched)
        self._loaded.clear()
        self._index_view = None
        return 0

    cdef bint _index_takes(self, IndexTarget *index, const Keys *keys) except -1:
        """Whether the newest index file has room for all keys; it is made if there is none."""
        if keys.count == 0:
            return True
        if index.at == NULL:
            file = self._index.last_writable()
            self._index_view = file.mapping
            index.at = &self._index_view[0]
            index.slots = file.slots
            index.entries = file.entries
        return index_has_room(index, keys)

    cdef _Topic _topic(self, object topic):
        """The lane's note of a plain topic that has queues, or ``None``."""
        cdef _Topic known
        if topic is self._last_name:
            return self._last_topic
        known = self._topics.get(topic)
        if known is None or known.burst != self._burst:
            known = self._fresh_topic(topic, known)
        if known is not None:
            self._last_name = topic
            self._last_topic = known
        return known

    cdef _Topic _fresh_topic(self, object topic, _Topic known):
        """Check or make a note at its first use in a burst."""
        cdef object table = self._queues.table.get(topic)
        cdef Py_ssize_t size = 0
        cdef const char *text
        if table is None:
            return None
        if known is not None and known.table is table:
            known.burst = self._burst
            return known
        if not PyUnicode_CheckExact(topic) or not PyUnicode_IS_ASCII(topic):
            return None
        text = PyUnicode_AsUTF8AndSize(topic, &size)
        if not 0 < size <= TOPIC_MAX or topic == "SCHEDULE_TOPIC_XXXX":
            return None
        known = _Topic.__new__(_Topic)
        known.name = text[:size]
        known.table = table
        known.queues = {}
        known.hash_ = java_hash(
            java_hash(0, <const unsigned char *>text, size), <const unsigned char *>b"#", 1
        )
        known.burst = self._burst
        self._topics[topic] = known
        return known

    cdef _Queue _queue(self, _Topic topic, int32_t queue_id, bint dispatch):
        """A queue loaded for this burst, or ``None`` if the reference path has to see to it."""
        cdef _Queue queue = topic.queue(queue_id)
        if queue is None:
            return None
        if queue.burst != self._burst:
            if queue.queue is not topic.table.get(queue_id):
                del topic.queues[queue_id]
                return self._queue(topic, queue_id, dispatch)
            if not queue.load(self._burst, dispatch):
                return None
            self._loaded.append(queue)
        return queue

    def append(self, list messages not None, Py_ssize_t first, int64_t now_ms, bint dispatch,
               int64_t[::1] queue_offsets not None, int64_t[::1] physical_offsets not None):
        """Append plain messages from ``messages[first]`` on to the last segment.

        Stops at the first message it leaves to the reference path and returns its number. With
        ``dispatch`` queue entries are collected and the index is written as well; the caller has
        made sure that everything before is dispatched.
        """
        cdef object segment = self._log.queue.last
        cdef Py_ssize_t count = len(messages)
        cdef Py_ssize_t number = first
        cdef Py_ssize_t position
        cdef int64_t start_offset
        cdef unsigned char[::1] view
        cdef IndexTarget index
        cdef IndexTarget *index_at = &index if dispatch and self._index is not None else NULL
        if segment is None or segment.is_full:
            return first
        target = segment.view if segment.write_buffer is None else segment.write_buffer
        view = target
        position = segment.wrote
        start_offset = segment.start_offset
        index.at = NULL
        self._begin()
        try:
            while number < count:
                if not self._append_one(
                    messages[number], view, &position, start_offset, now_ms, dispatch, index_at,
                    &queue_offsets[number], &physical_offsets[number],
                ):
                    break
                number += 1
        finally:
            self._end()
            if number > first:
                segment.moved_to(position)
                segment.store_timestamp_ms = now_ms
                self._log.store_timestamp_ms = now_ms
                if dispatch:
                    self._dispatcher.dispatched_offset = start_offset + position
                    self._dispatcher.store_timestamp_ms = now_ms
        return number

    cdef bint _append_one(
        self, object message, unsigned char[::1] view, Py_ssize_t *position, int64_t start_offset,
        int64_t now_ms, bint dispatch, IndexTarget *index,
        int64_t *queue_offset_out, int64_t *physical_offset_out,
    ) except -1:
        """Append one message if it is plain; its fields are those of model.BrokerMessage."""
        cdef tuple fields = <tuple>message
        cdef object body = fields[2]
        cdef object properties = fields[3]
        cdef int32_t queue_id, flag, reconsume_times
        cdef uint32_t sys_flag
        cdef int64_t born_ms, prepared_offset
        cdef _Topic topic = self._topic(fields[0])
        cdef _Queue queue
        cdef Py_ssize_t body_size, properties_size, size, at = position[0]
        cdef Properties found
        cdef Keys keys
        cdef Host born_host, store_host
        cdef unsigned char *record
        try:
            queue_id = fields[1]
            flag = fields[4]
            sys_flag = <uint32_t><int32_t>fields[5]
            born_ms = fields[6]
            reconsume_times = fields[9]
            prepared_offset = fields[10]
        except OverflowError:
            return False
        if topic is None or sys_flag & (TRANSACTION | BORN_V6 | STORE_V6):
            return False
        if not PyBytes_CheckExact(body) or not PyBytes_CheckExact(properties):
            return False
        body_size = PyBytes_GET_SIZE(body)
        properties_size = PyBytes_GET_SIZE(properties)
        if body_size > self._max_body or properties_size > PROPERTIES_MAX:
            return False
        size = RECORD_MIN + body_size + PyBytes_GET_SIZE(topic.name) + properties_size
        if at + size + END_OF_SEGMENT > view.shape[0]:
            return False
        read_properties(
            <const unsigned char *>PyBytes_AS_STRING(properties), properties_size, &found
        )
        if not found.is_plain or memchr(PyBytes_AS_STRING(properties), 0, properties_size) != NULL:
            return False
        if not read_host(<tuple>fields[7], &born_host) or not read_host(
            <tuple>fields[8], &store_host
        ):
            return False
        queue = self._queue(topic, queue_id, dispatch)
        if queue is None or not collect_keys(topic.hash_, &found, &keys):
            return False
        if index != NULL and not self._index_takes(index, &keys):
            return False
        record = &view[at]
        roquet_put32(record + 8, roquet_crc32(
            <const unsigned char *>PyBytes_AS_STRING(body), body_size) & CRC_MASK)
        roquet_put32(record + 12, <uint32_t>queue_id)
        roquet_put32(record + 16, <uint32_t>flag)
        roquet_put64(record + 20, <uint64_t>queue.next_offset)
        roquet_put64(record + 28, <uint64_t>(start_offset + at))
        roquet_put32(record + 36, sys_flag)
        roquet_put64(record + 40, <uint64_t>born_ms)
        write_host(record + 48, &born_host)
        roquet_put64(record + 56, <uint64_t>now_ms)
        write_host(record + 64, &store_host)
        roquet_put32(record + 72, <uint32_t>reconsume_times)
        roquet_put64(record + 76, <uint64_t>prepared_offset)
        roquet_put32(record + 84, <uint32_t>body_size)
        write_texts(record + 88, body, topic.name, properties)
        roquet_publish(record, <uint32_t>size, MAGIC_V1)
        queue_offset_out[0] = queue.next_offset
        physical_offset_out[0] = start_offset + at
        queue.next_offset += 1
        position[0] = at + size
        if dispatch:
            queue.add(start_offset + at, <uint32_t>size,
                      <int32_t>java_hash(0, found.tags.at, found.tags.size))
            if index != NULL and keys.count:
                index_record(index, &keys, start_offset + at, now_ms)
        return True

    def redispatch(self, const unsigned char[::1] view not None, Py_ssize_t position,
                   Py_ssize_t limit, int64_t start_offset):
        """Dispatch plain records of a segment from ``position`` up to ``limit``.

        Returns the position of the first record it leaves to the reference path.
        """
        cdef Record record
        cdef IndexTarget index
        cdef IndexTarget *index_at = &index if self._index is not None else NULL
        cdef Py_ssize_t began = position
        cdef int64_t last_ms = 0
        index.at = NULL
        self._begin()
        try:
            while position < limit:
                if not read_record(
                    &view[position], limit - position, start_offset + position, False, &record
                ):
                    break
                if not self._redispatch_one(&record, start_offset + position, index_at):
                    break
                last_ms = record.store_timestamp_ms
                position += record.size
        finally:
            self._end()
            if position > began:
                self._dispatcher.dispatched_offset = start_offset + position
                self._dispatcher.store_timestamp_ms = last_ms
        return position

    cdef bint _redispatch_one(self, Record *record, int64_t offset, IndexTarget *index) except -1:
        """Give one plain record to its queue and the index, passing over what they have."""
        cdef _Topic topic = self._last_topic
        cdef _Queue queue
        cdef Keys keys
        cdef int64_t expected
        if topic is None or PyBytes_GET_SIZE(topic.name) != record.topic.size or memcmp(
            PyBytes_AS_STRING(topic.name), record.topic.at, record.topic.size
        ) != 0:
            topic = self._topic((<const char *>record.topic.at)[:record.topic.size].decode("ascii"))
        if topic is None or not collect_keys(topic.hash_, &record.properties, &keys):
            return False
        queue = self._queue(topic, record.queue_id, False)
        if queue is None or (index != NULL and not self._index_takes(index, &keys)):
            return False
        if offset + record.size > queue.max_physical_offset:
            expected = queue.queue.max_queue_offset
            expected += (PyByteArray_GET_SIZE(queue.queue.pending) + queue.used) // UNIT
            if expected != record.queue_offset:
                return False
            queue.add(offset, record.size, <int32_t>java_hash(
                0, record.properties.tags.at, record.properties.tags.size))
            if queue.next_offset <= record.queue_offset:
                queue.next_offset = record.queue_offset + 1
        if index != NULL and keys.count:
            index_record(index, &keys, offset, record.store_timestamp_ms)
        return True


cdef bint read_host(tuple host, Host *out) except -1:
    """An IPv4 host; false for any other."""
    cdef object ip = host[0]
    try:
        out.port = host[1]
    except OverflowError:
        return False
    if not PyBytes_CheckExact(ip) or PyBytes_GET_SIZE(ip) != 4:
        return False
    memcpy(out.ip, PyBytes_AS_STRING(ip), 4)
    return True


cdef void write_host(unsigned char *at, const Host *host) noexcept:
    memcpy(at, host.ip, 4)
    roquet_put32(at + 4, <uint32_t>host.port)


cdef void write_texts(unsigned char *at, bytes body, bytes topic, bytes properties) noexcept:
    """Body, topic and properties with the two lengths between them."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
    memcpy(at, PyBytes_AS_STRING(body), size)
    at += size
    size = PyBytes_GET_SIZE(topic)
    at[0] = <unsigned char>size
    memcpy(at + 1, PyBytes_AS_STRING(topic), size)
    at += 1 + size
    size = PyBytes_GET_SIZE(properties)
    at[0] = <unsigned char>(size >> 8)
    at[1] = <unsigned char>size
    memcpy(at + 2, PyBytes_AS_STRING(properties), size)
