# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled lane: the hot, ordinary cases of append, dispatch, recovery and reading.

Owns nothing. It works on the objects of the reference path (``MappedFile``, ``ConsumeQueue``,
``IndexFile``) and writes the bytes they would write. Whatever is not plain it leaves untouched
for the reference path: transactions, records with a CRC property, topics or keys that are not
ASCII, V2 records, a record that does not fit its segment, a full index file. A delayed message is
plain; its queue entry has the time when it is due where others have the hash of their tags.

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


cdef extern from "_text.h":
    uint32_t roquet_java_hash(uint32_t start, const unsigned char *at, size_t size) nogil


cdef extern from "_bytes.h":
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

roquet_crc32_init()


# -- text ----------------------------------------------------------------------------------------


cdef bint is_ascii(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef unsigned char seen = 0
    for i in range(size):
        seen |= at[i]
    return seen < 0x80


cdef uint32_t java_hash(uint32_t start, const unsigned char *at, Py_ssize_t size) noexcept nogil:
    """Java's string hash of ASCII, continued from ``start``."""
    return roquet_java_hash(start, at, size)


cdef inline int64_t tags_hash(const Properties *found) noexcept nogil:
    return <int32_t>java_hash(0, found.tags.at, found.tags.size)


cdef void read_properties(const unsigned char *at, Py_ssize_t size, Properties *found) noexcept nogil:
    """Find the properties dispatch needs; the last of a name counts, empty ones do not."""
    cdef const unsigned char *end = at + size
    cdef const unsigned char *pair_end
    found.tags.size = found.keys.size = found.unique.size = found.delay.size = 0
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
        elif size > 6 and at[5] == 1 and memcmp(at, b"DELAY", 5) == 0:
            found.delay.at = at + 6
            found.delay.size = size - 6
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


cdef inline bint index_has_room(const IndexTarget *index, uint32_t count) noexcept nogil:
    """Whether that many keys fit."""
    cdef uint32_t number = roquet_get32(index.at + 36)
    return (number if number else 1) + count <= index.entries


cdef inline void prefetch_slots(const IndexTarget *index, const Keys *keys) noexcept nogil:
    """Fetch the keys' slots, which lie anywhere in the file, while the record is written."""
    cdef uint32_t i
    for i in range(keys.count):
        roquet_prefetch(index.at + INDEX_HEADER + <size_t>(keys.hashes[i] % index.slots) * 4)


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


cdef inline bint is_schedule_topic(const void *at, Py_ssize_t size) noexcept nogil:
    return size == 19 and memcmp(at, b"SCHEDULE_TOPIC_XXXX", 19) == 0


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
    out.is_delayed = is_schedule_topic(out.topic.at, out.topic.size)
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
    """Whether a record is plain, whole, and the one its queue entry speaks of; of any due time."""
    cdef Record found
    if record.shape[0] == 0 or not read_record(&record[0], record.shape[0], physical_offset, True, &found):
        return False
    return (
        found.size == record.shape[0]
        and found.queue_id == queue_id
        and found.queue_offset == queue_offset
        and found.topic.size == PyBytes_GET_SIZE(topic)
        and memcmp(found.topic.at, PyBytes_AS_STRING(topic), found.topic.size) == 0
        and (found.is_delayed or tags_hash(&found.properties) == tags_code)
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

    cdef int reserve(self, Py_ssize_t count) except -1:
        """Make room for that many more entries."""
        cdef Py_ssize_t room = self.room if self.room else 64 * UNIT
        cdef void *grown
        while room < self.used + count * UNIT:
            room *= 2
        if room > self.room:
            grown = realloc(self.units, room)
            if grown == NULL:
                raise MemoryError
            self.units = <unsigned char *>grown
            self.room = room
        return 0

    cdef void add(self, int64_t physical_offset, uint32_t size, int64_t tags_code) noexcept:
        """Collect one entry, for which there is room."""
        cdef unsigned char *unit = self.units + self.used
        roquet_put64(unit, <uint64_t>physical_offset)
        roquet_put32(unit + 8, size)
        roquet_put64(unit + 12, <uint64_t>tags_code)
        self.used += UNIT
        self.max_physical_offset = physical_offset + size

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

    def __dealloc__(self):
        free(self._batch_keys)

    def __init__(self, commit_log, queues, index, dispatcher, *, Py_ssize_t max_body_bytes):
        """Work on the parts of a store; ``index`` may be ``None``."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._max_body = max_body_bytes
        self._note_delays(commit_log.rules.delay_levels)
        self._topics = {}
        self._burst = 0
        self._loaded = []
        self._last_name = None
        self._last_topic = None

    cdef int _note_delays(self, object levels) except -1:
        """Without levels, or with very many, the reference path has all delayed messages."""
        cdef int level
        self._delay_levels = levels.max_level if levels.max_level <= DELAY_LEVELS_MAX else 0
        for level in range(self._delay_levels):
            self._delays_ms[level] = levels.deliver_timestamp_ms(level + 1, 0)
        return 0

    cdef bint _entry_code(
        self, _Topic topic, const Properties *found, int64_t store_ms, int64_t *code
    ) noexcept:
        """The last field of a queue entry; false if the reference path has to judge of a delay."""
        cdef int64_t level = 0
        cdef Py_ssize_t i
        code[0] = tags_hash(found)
        if not topic.is_delayed or found.delay.size == 0:
            return True
        for i in range(found.delay.size):
            if i == 9 or not c"0" <= found.delay.at[i] <= c"9":
                return False
            level = 10 * level + found.delay.at[i] - c"0"
        if level > 0:
            level = min(level, <int64_t>self._delay_levels)
            code[0] = store_ms + self._delays_ms[level - 1]
        return True

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

    cdef bint _index_takes(self, IndexTarget *index, uint32_t count) except -1:
        """Whether the newest index file has room for that many keys; one is made if there is none."""
        if count == 0:
            return True
        if index.at == NULL:
            file = self._index.last_writable()
            self._index_view = file.mapping
            index.at = &self._index_view[0]
            index.slots = file.slots
            index.entries = file.entries
        return index_has_room(index, count)

    cdef _Topic topic(self, object name):
        """The lane's note of a topic for everybody that has queues, or ``None``."""
        cdef _Topic known = self._any_topic(name)
        return None if known is None or known.is_delayed else known

    cdef _Topic _any_topic(self, object name):
        """The lane's note of a plain topic that has queues, or ``None``."""
        cdef _Topic known
        if name is self._last_name:
            return self._last_topic
        known = self._topics.get(name)
        if known is None or known.burst != self._burst:
            known = self._fresh_topic(name, known)
        if known is not None:
            self._last_name = name
            self._last_topic = known
        return known

    cdef _Topic _fresh_topic(self, object topic, _Topic known):
        """Check or make a note at its first use in a burst."""
        cdef object table = self._queues.table.get(topic)
        cdef Py_ssize_t size = 0
        cdef const char *text
        cdef bint is_delayed
        if table is None:
            return None
        if known is not None and known.table is table:
            known.burst = self._burst
            return known
        if not PyUnicode_CheckExact(topic) or not PyUnicode_IS_ASCII(topic):
            return None
        text = PyUnicode_AsUTF8AndSize(topic, &size)
        is_delayed = is_schedule_topic(text, size)
        if not 0 < size <= TOPIC_MAX or (is_delayed and self._delay_levels == 0):
            return None
        known = _Topic.__new__(_Topic)
        known.name = text[:size]
        known.table = table
        known.queues = {}
        known.hash_ = java_hash(
            java_hash(0, <const unsigned char *>text, size), <const unsigned char *>b"#", 1
        )
        known.burst = self._burst
        known.is_delayed = is_delayed
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
        cdef Py_ssize_t count = len(messages)
        cdef Py_ssize_t number = first
        cdef Target target
        if not self.open_target(&target, now_ms, dispatch):
            return first
        try:
            while number < count and self._append_one(
                messages[number], &target, &queue_offsets[number], &physical_offsets[number]
            ):
                number += 1
        finally:
            self.close_target(&target)
        return number

    cdef bint open_target(self, Target *target, int64_t now_ms, bint dispatch) except -1:
        """Begin a burst at the end of the last segment; false if that is none to append to.

        Must be followed by :meth:`close_target`.
        """
        cdef object segment = self._log.queue.last
        if segment is None or segment.is_full:
            return False
        self._segment = segment
        self._segment_view = segment.view if segment.write_buffer is None else segment.write_buffer
        target.at = &self._segment_view[0]
        target.size = self._segment_view.shape[0]
        target.began = target.position = segment.wrote
        target.start_offset = segment.start_offset
        target.now_ms = now_ms
        target.dispatch = dispatch
        target.has_index = dispatch and self._index is not None
        target.index.at = NULL
        self._begin()
        return True

    cdef int close_target(self, Target *target) except -1:
        """End a burst: tell everybody concerned how far it went."""
        cdef object segment = self._segment
        self._segment = None
        self._segment_view = None
        self._end()
        if target.position > target.began:
            segment.moved_to(target.position)
            segment.store_timestamp_ms = target.now_ms
            self._log.store_timestamp_ms = target.now_ms
            if target.dispatch:
                self._dispatcher.dispatched_offset = target.start_offset + target.position
                self._dispatcher.store_timestamp_ms = target.now_ms
        return 0

    cdef bint _append_one(
        self, object message, Target *target, int64_t *queue_offset, int64_t *physical_offset
    ) except -1:
        """Append one message if it is plain; its fields are those of model.BrokerMessage."""
        cdef tuple fields = <tuple>message
        cdef object body = fields[2]
        cdef object properties = fields[3]
        cdef Message plain
        cdef _Topic topic = self._any_topic(fields[0])
        try:
            plain.queue_id = fields[1]
            plain.flag = fields[4]
            plain.sys_flag = <uint32_t><int32_t>fields[5]
            plain.born_ms = fields[6]
            plain.reconsume_times = fields[9]
            plain.prepared_offset = fields[10]
        except OverflowError:
            return False
        if topic is None or plain.sys_flag & (TRANSACTION | BORN_V6 | STORE_V6):
            return False
        if not PyBytes_CheckExact(body) or not PyBytes_CheckExact(properties):
            return False
        set_text(&plain.body, body)
        set_text(&plain.properties, properties)
        plain.own_properties.size = 0
        read_properties(plain.properties.at, plain.properties.size, &plain.found)
        if not plain.found.is_plain or memchr(plain.properties.at, 0, plain.properties.size) != NULL:
            return False
        if not read_host(<tuple>fields[7], &plain.born_host) or not read_host(
            <tuple>fields[8], &plain.store_host
        ):
            return False
        return self.append_message(topic, &plain, target, queue_offset, physical_offset)

    cdef bint append_message(
        self, _Topic topic, const Message *message, Target *target,
        int64_t *queue_offset, int64_t *physical_offset,
    ) except -1:
        """Append a plain message if it fits everywhere; otherwise nothing has changed.

        The caller has made sure of what the text of a plain message is: no NUL among the
        properties, none that asks for more than storing, ASCII in those that are indexed.
        """
        cdef Py_ssize_t size = record_size(topic, message)
        cdef int64_t offset = target.start_offset + target.position
        cdef unsigned char *record = target.at + target.position
        cdef int64_t code
        cdef Keys keys
        cdef _Queue queue
        if not self._fits(message) or target.position + size + END_OF_SEGMENT > target.size:
            return False
        if not self._entry_code(topic, &message.found, target.now_ms, &code):
            return False
        queue = self._queue(topic, message.queue_id, target.dispatch)
        if queue is None or not collect_keys(topic.hash_, &message.found, &keys):
            return False
        if target.has_index:
            if not self._index_takes(&target.index, keys.count):
                return False
            if keys.count:
                prefetch_slots(&target.index, &keys)
        queue.reserve(1)
        write_record(record, topic, message, queue.next_offset, offset, target.now_ms)
        roquet_publish(record, <uint32_t>size, MAGIC_V1)
        queue_offset[0] = queue.next_offset
        physical_offset[0] = offset
        queue.next_offset += 1
        target.position += size
        if target.dispatch:
            dispatch_record(target, queue, code, &keys, offset, size)
        return True

    cdef bint append_batch(
        self, _Topic topic, const Message *messages, Py_ssize_t count, Target *target,
        int64_t *queue_offset, int64_t *physical_offsets,
    ) except -1:
        """Append all of these messages of one queue, or none.

        The first one's first bytes are written last, so that a killed process leaves no part of
        them behind.
        """
        cdef Py_ssize_t number, size, total = 0, first_size = 0
        cdef uint32_t key_count = 0
        cdef unsigned char *first = target.at + target.position
        cdef Keys *keys = self._keys_of(count)
        cdef _Queue queue
        for number in range(count):
            if not self._fits(&messages[number]) or not collect_keys(
                topic.hash_, &messages[number].found, &keys[number]
            ):
                return False
            total += record_size(topic, &messages[number])
            key_count += keys[number].count
        if count == 0 or target.position + total + END_OF_SEGMENT > target.size:
            return False
        queue = self._queue(topic, messages[0].queue_id, target.dispatch)
        if queue is None:
            return False
        if target.has_index and not self._index_takes(&target.index, key_count):
            return False
        queue.reserve(count)
        queue_offset[0] = queue.next_offset
        for number in range(count):
            size = record_size(topic, &messages[number])
            physical_offsets[number] = target.start_offset + target.position
            if target.has_index and keys[number].count:
                prefetch_slots(&target.index, &keys[number])
            write_record(target.at + target.position, topic, &messages[number],
                         queue.next_offset, physical_offsets[number], target.now_ms)
            if number == 0:
                first_size = size
            else:
                roquet_publish(target.at + target.position, <uint32_t>size, MAGIC_V1)
            queue.next_offset += 1
            target.position += size
        roquet_publish(first, <uint32_t>first_size, MAGIC_V1)
        if target.dispatch:
            for number in range(count):
                dispatch_record(target, queue, tags_hash(&messages[number].found), &keys[number],
                                physical_offsets[number], record_size(topic, &messages[number]))
        return True

    cdef Keys *_keys_of(self, Py_ssize_t count) except NULL:
        """Room for the keys of a batch."""
        cdef void *grown
        if self._batch_keys == NULL or count > self._batch_keys_room:
            grown = realloc(self._batch_keys, max(count, 32) * sizeof(Keys))
            if grown == NULL:
                raise MemoryError
            self._batch_keys = <Keys *>grown
            self._batch_keys_room = max(count, 32)
        return self._batch_keys

    cdef inline bint _fits(self, const Message *message) noexcept:
        return (
            message.body.size <= self._max_body
            and message.properties.size + message.own_properties.size <= PROPERTIES_MAX
        )

    def redispatch(self, const unsigned char[::1] view not None, Py_ssize_t position,
                   Py_ssize_t limit, int64_t start_offset):
        """Dispatch plain records of a segment from ``position`` up to ``limit``.

        Returns the position of the first record it leaves to the reference path.
        """
        cdef Record record
        cdef Target target
        cdef Py_ssize_t began = position
        cdef int64_t last_ms = 0
        target.has_index = self._index is not None
        target.index.at = NULL
        self._begin()
        try:
            while position < limit:
                if not read_record(
                    &view[position], limit - position, start_offset + position, False, &record
                ):
                    break
                if not self._redispatch_one(&record, start_offset + position, &target):
                    break
                last_ms = record.store_timestamp_ms
                position += record.size
        finally:
            self._end()
            if position > began:
                self._dispatcher.dispatched_offset = start_offset + position
                self._dispatcher.store_timestamp_ms = last_ms
        return position

    cdef bint _redispatch_one(self, Record *record, int64_t offset, Target *target) except -1:
        """Give one plain record to its queue and the index, passing over what they have."""
        cdef _Topic topic = self._last_topic
        cdef _Queue queue
        cdef Keys keys
        cdef int64_t expected, code
        if topic is None or PyBytes_GET_SIZE(topic.name) != record.topic.size or memcmp(
            PyBytes_AS_STRING(topic.name), record.topic.at, record.topic.size
        ) != 0:
            topic = self._any_topic((<const char *>record.topic.at)[:record.topic.size].decode("ascii"))
        if topic is None or not collect_keys(topic.hash_, &record.properties, &keys):
            return False
        queue = self._queue(topic, record.queue_id, False)
        if queue is None or (target.has_index and not self._index_takes(&target.index, keys.count)):
            return False
        if not self._entry_code(topic, &record.properties, record.store_timestamp_ms, &code):
            return False
        if offset + record.size > queue.max_physical_offset:
            expected = queue.queue.max_queue_offset
            expected += (PyByteArray_GET_SIZE(queue.queue.pending) + queue.used) // UNIT
            if expected != record.queue_offset:
                return False
            queue.reserve(1)
            queue.add(offset, record.size, code)
            if queue.next_offset <= record.queue_offset:
                queue.next_offset = record.queue_offset + 1
        if target.has_index and keys.count:
            index_record(&target.index, &keys, offset, record.store_timestamp_ms)
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


cdef inline void set_text(Text *text, bytes data) noexcept:
    text.at = <const unsigned char *>PyBytes_AS_STRING(data)
    text.size = PyBytes_GET_SIZE(data)


cdef inline Py_ssize_t record_size(_Topic topic, const Message *message) noexcept:
    return (
        RECORD_MIN + message.body.size + PyBytes_GET_SIZE(topic.name)
        + message.properties.size + message.own_properties.size
    )


cdef inline void write_host(unsigned char *at, const Host *host) noexcept:
    memcpy(at, host.ip, 4)
    roquet_put32(at + 4, <uint32_t>host.port)


cdef void write_record(
    unsigned char *record, _Topic topic, const Message *message, int64_t queue_offset,
    int64_t physical_offset, int64_t now_ms,
) noexcept:
    """A record but for its first eight bytes, which make it visible."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(topic.name)
    cdef unsigned char *at = record + 88 + message.body.size
    roquet_put32(record + 8, roquet_crc32(message.body.at, message.body.size) & CRC_MASK)
    roquet_put32(record + 12, <uint32_t>message.queue_id)
    roquet_put32(record + 16, <uint32_t>message.flag)
    roquet_put64(record + 20, <uint64_t>queue_offset)
    roquet_put64(record + 28, <uint64_t>physical_offset)
    roquet_put32(record + 36, message.sys_flag)
    roquet_put64(record + 40, <uint64_t>message.born_ms)
    write_host(record + 48, &message.born_host)
    roquet_put64(record + 56, <uint64_t>now_ms)
    write_host(record + 64, &message.store_host)
    roquet_put32(record + 72, <uint32_t>message.reconsume_times)
    roquet_put64(record + 76, <uint64_t>message.prepared_offset)
    roquet_put32(record + 84, <uint32_t>message.body.size)
    memcpy(record + 88, message.body.at, message.body.size)
    at[0] = <unsigned char>size
    memcpy(at + 1, PyBytes_AS_STRING(topic.name), size)
    at += 1 + size
    size = message.properties.size + message.own_properties.size
    at[0] = <unsigned char>(size >> 8)
    at[1] = <unsigned char>size
    memcpy(at + 2, message.properties.at, message.properties.size)
    if message.own_properties.size:
        memcpy(at + 2 + message.properties.size, message.own_properties.at,
               message.own_properties.size)


cdef inline void dispatch_record(
    Target *target, _Queue queue, int64_t code, const Keys *keys, int64_t offset, Py_ssize_t size,
) noexcept:
    """Give a record to its queue and the index; there is room in both."""
    queue.add(offset, <uint32_t>size, code)
    if target.has_index and keys.count:
        index_record(&target.index, keys, offset, target.now_ms)
