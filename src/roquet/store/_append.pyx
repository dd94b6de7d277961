"""Append and dispatch of plain messages, compiled: the twin of ``append.py`` and ``dispatch.py``.

Owns nothing. It works on the objects of the reference path (``MappedFile``, ``ConsumeQueue``,
``IndexFile``) and writes the bytes they would write. It leaves everything that is not plain to the
reference path: what :mod:`roquet.format._record` does not read, a record that does not fit its
segment, a full index file. A delayed message is plain; its queue entry has its due time where
others have the hash of their tags.
"""

from cpython.bytearray cimport PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from roquet.format._derived cimport collect_keys
from roquet.format._layout cimport *
from roquet.format._record cimport (
    Host, is_schedule_topic, read_properties, read_record, record_size, tags_hash, write_record,
)
from roquet.model._bytes cimport roquet_publish
from roquet.model._constants cimport *
from roquet.model._text cimport Text, roquet_java_hash
from roquet.store._index cimport index_has_room, index_record, open_index, prefetch_slots


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyUnicode_IS_ASCII(object text)


cdef enum:
    MESSAGE_FIELDS = 12  # of model.BrokerMessage
    HOST_FIELDS = 2

cdef class _Topic:
    """The cache for a topic: its bytes, its queues, and the hash of ``topic#``."""

    cdef BurstQueue queue(self, int32_t queue_id):
        """A queue that exists, or ``None``."""
        cdef BurstQueue known = self.queues.get(queue_id)
        cdef object queue
        if known is not None:
            return known
        queue = self.table.get(queue_id)
        if queue is None:
            return None
        known = BurstQueue.__new__(BurstQueue)
        known.queue = queue
        self.queues[queue_id] = known
        return known


cdef class PlainAppender:
    """Append and dispatch for one store."""

    def __dealloc__(self):
        free(self._batch_keys)

    def __init__(self, commit_log, queues, index, dispatcher, *, Py_ssize_t max_body_bytes):
        """Work on the parts of a store; ``index`` may be ``None``."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self.max_body = max_body_bytes
        self._note_delays(commit_log.rules.delay_levels)
        self._topics = {}
        self._burst = 0
        self._loaded = []
        self._last_name = None
        self._last_topic = None

    cdef int _note_delays(self, object levels) except -1:
        """Cache the delays; without levels, or with very many, the reference path handles them."""
        cdef int level
        self._delay_levels = levels.max_level if levels.max_level <= DELAY_LEVELS_MAX else 0
        for level in range(self._delay_levels):
            self._delays_ms[level] = levels.deliver_timestamp_ms(level + 1, 0)
        return 0

    cdef bint _entry_code(
        self, _Topic topic, const Properties *found, int64_t store_ms, int64_t *code
    ) noexcept:
        """Set the last field of an entry; false if the reference path has to decide on a delay."""
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
        """Start a burst: cached topics are checked again before they are used."""
        self._burst += 1
        self._loaded.clear()
        self._last_name = None
        self._last_topic = None
        if len(self._topics) > 4096:
            self._topics.clear()
        return 0

    cdef int _end(self) except -1:
        """Pass everything collected to the queues."""
        cdef BurstQueue queue
        cdef list touched = self._queues.touched
        for queue in self._loaded:
            queue.store(touched)
        self._loaded.clear()
        self._index_view = None
        return 0

    cdef bint _index_takes(self, IndexTarget *index, uint32_t count) except -1:
        """Whether the newest index file has room for ``count`` keys; creates the first file."""
        cdef list files
        if count == 0:
            return True
        if index.at == NULL:
            files = self._index.open_files
            if files and files[len(files) - 1].has_blocks:
                self._index_view = open_index(index, files[len(files) - 1])
            if index.at == NULL or not index_has_room(index, 1):
                self._index_view = open_index(index, self._index.last_writable())
        return index_has_room(index, count)

    cdef _Topic topic(self, object name):
        """The cached topic if it is plain, not delayed, and has queues; otherwise ``None``."""
        cdef _Topic known = self._any_topic(name)
        return None if known is None or known.is_delayed else known

    cdef _Topic _any_topic(self, object name):
        """The cached topic if it is plain and has queues; otherwise ``None``."""
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
        """Check or create a cached topic at its first use in a burst."""
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
        if not 0 < size <= TOPIC_LENGTH_MAX or (is_delayed and self._delay_levels == 0):
            return None
        known = _Topic.__new__(_Topic)
        known.name = text[:size]
        known.table = table
        known.queues = {}
        known.hash_ = roquet_java_hash(
            roquet_java_hash(0, <const unsigned char *>text, size), <const unsigned char *>b"#", 1
        )
        known.burst = self._burst
        known.is_delayed = is_delayed
        self._topics[topic] = known
        return known

    cdef BurstQueue _queue(self, _Topic topic, int32_t queue_id, bint dispatch):
        """A queue loaded for this burst, or ``None`` if the reference path has to handle it."""
        cdef BurstQueue queue = topic.queue(queue_id)
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
        ``dispatch``, also collects queue entries and writes the index; the caller has made sure
        that everything before is dispatched.
        """
        cdef Py_ssize_t count = len(messages), number = first
        cdef Target target
        if first < 0 or queue_offsets.shape[0] < count or physical_offsets.shape[0] < count:
            raise ValueError("no room for the offsets of these messages")
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
        """Begin a burst at the end of the last segment; false if it cannot be appended to.

        Must be followed by :meth:`close_target`.
        """
        cdef MappedFile segment = self._log.queue.last
        if segment is None or segment.wrote == segment.size_bytes:
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
        """End a burst: update the marks of segment and log, the queues, and the dispatcher."""
        cdef MappedFile segment = self._segment
        self._segment = None
        self._segment_view = None
        if target.position > target.began:
            # First, so that nothing overwrites these records, whatever fails below.
            segment.moved_to(target.position)
            segment.store_timestamp_ms = target.now_ms
            self._log.store_timestamp_ms = target.now_ms
        self._end()
        if target.dispatch and target.position > target.began:
            self._dispatcher.dispatched_offset = target.start_offset + target.position
            self._dispatcher.store_timestamp_ms = target.now_ms
        return 0

    cdef bint _append_one(
        self, object message, Target *target, int64_t *queue_offset, int64_t *physical_offset
    ) except -1:
        """Append one message if it is plain; its fields are those of model.BrokerMessage."""
        cdef tuple fields = fields_of(message, MESSAGE_FIELDS)
        cdef object body = fields[2], properties = fields[3]
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
        if topic is None or plain.sys_flag & (
            TRANSACTION_MASK | BORN_HOST_V6 | STORE_HOST_V6 | INNER_BATCH
        ):
            return False
        if not PyBytes_CheckExact(body) or not PyBytes_CheckExact(properties):
            return False
        set_text(&plain.topic, topic.name)
        set_text(&plain.body, body)
        set_text(&plain.properties, properties)
        plain.own_properties.size = 0
        read_properties(plain.properties.at, plain.properties.size, &plain.found)
        if not plain.found.is_plain or memchr(plain.properties.at, 0, plain.properties.size) != NULL:
            return False
        if not read_host(fields[7], &plain.born_host) or not read_host(
            fields[8], &plain.store_host
        ):
            return False
        return self.append_message(topic, &plain, target, queue_offset, physical_offset)

    cdef bint append_message(
        self, _Topic topic, const Message *message, Target *target,
        int64_t *queue_offset, int64_t *physical_offset,
    ) except -1:
        """Append a plain message if it fits everywhere; otherwise change nothing.

        The caller has made sure that the message is plain: no NUL in the properties, none that
        asks for more than storage, ASCII in those that are indexed.
        """
        cdef Py_ssize_t size = record_size(message)
        cdef int64_t offset = target.start_offset + target.position
        cdef unsigned char *record = target.at + target.position
        cdef int64_t code
        cdef Keys keys
        cdef BurstQueue queue
        if not self._fits(message) or target.position + size + END_OF_SEGMENT_BYTES > target.size:
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
        write_record(record, message, queue.next_offset, offset, target.now_ms)
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

        The first bytes of the first one are written last, so that a killed process leaves none
        of them.
        """
        cdef Py_ssize_t number, size, total = 0, first_size = 0
        cdef uint32_t key_count = 0
        cdef unsigned char *first = target.at + target.position
        cdef Keys *keys = self._keys_of(count)
        cdef BurstQueue queue
        for number in range(count):
            if not self._fits(&messages[number]) or not collect_keys(
                topic.hash_, &messages[number].found, &keys[number]
            ):
                return False
            total += record_size(&messages[number])
            key_count += keys[number].count
        if count == 0 or target.position + total + END_OF_SEGMENT_BYTES > target.size:
            return False
        queue = self._queue(topic, messages[0].queue_id, target.dispatch)
        if queue is None:
            return False
        if target.has_index and not self._index_takes(&target.index, key_count):
            return False
        queue.reserve(count)
        queue_offset[0] = queue.next_offset
        for number in range(count):
            size = record_size(&messages[number])
            physical_offsets[number] = target.start_offset + target.position
            if target.has_index and keys[number].count:
                prefetch_slots(&target.index, &keys[number])
            write_record(target.at + target.position, &messages[number],
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
                                physical_offsets[number], record_size(&messages[number]))
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
            message.body.size <= self.max_body
            and message.properties.size + message.own_properties.size <= PROPERTIES_BYTES_MAX
        )

    def redispatch(self, const unsigned char[::1] view not None, Py_ssize_t position,
                   Py_ssize_t limit, int64_t start_offset, bint check_crc):
        """Dispatch plain records of a segment from ``position`` up to ``limit``.

        Returns the position of the first record it leaves to the reference path.
        """
        cdef Record record
        cdef Target target
        cdef Py_ssize_t began = position
        cdef int64_t last_ms = 0
        if position < 0:
            raise ValueError("a position before the segment")
        limit = min(limit, view.shape[0])
        target.has_index = self._index is not None
        target.index.at = NULL
        self._begin()
        try:
            while position < limit:
                if not read_record(
                    &view[position], limit - position, start_offset + position, check_crc, &record
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
        """Add one plain record to its queue and the index, unless they have it."""
        cdef _Topic topic = self._last_topic
        cdef BurstQueue queue
        cdef Keys keys
        cdef int64_t expected, code
        cdef bint indexes
        if topic is None or PyBytes_GET_SIZE(topic.name) != record.topic.size or memcmp(
            PyBytes_AS_STRING(topic.name), record.topic.at, record.topic.size
        ) != 0:
            topic = self._any_topic((<const char *>record.topic.at)[:record.topic.size].decode("ascii"))
        if topic is None or not collect_keys(topic.hash_, &record.properties, &keys):
            return False
        queue = self._queue(topic, record.queue_id, False)
        # A record that is already indexed must not create a file when the newest one is full.
        indexes = target.has_index and keys.count > 0 and (
            target.index.at != NULL or offset >= <int64_t>self._index.end_physical_offset)
        if queue is None or (indexes and not self._index_takes(&target.index, keys.count)):
            return False
        if not self._entry_code(topic, &record.properties, record.store_timestamp_ms, &code):
            return False
        if offset + record.size > queue.max_physical_offset:
            expected = queue.queue.max_queue_offset
            expected += (PyByteArray_GET_SIZE(queue.queue.pending) + queue.used) // UNIT_BYTES
            if expected != record.queue_offset:
                return False
            queue.reserve(1)
            queue.add(offset, record.size, code)
            if queue.next_offset <= record.queue_offset:
                queue.next_offset = record.queue_offset + 1
        if indexes:
            index_record(&target.index, &keys, offset, record.store_timestamp_ms)
        return True


cdef inline tuple fields_of(object value, Py_ssize_t count):
    """The fields of a named tuple, which a checked cast would refuse as a subclass."""
    if not PyTuple_Check(value) or PyTuple_GET_SIZE(value) != count:
        raise TypeError(f"{type(value).__name__} is not a tuple of {count} fields")
    return <tuple>value


cdef bint read_host(object host, Host *out) except -1:
    """Read an IPv4 host; false for any other."""
    cdef tuple fields = fields_of(host, HOST_FIELDS)
    cdef object ip = fields[0]
    try:
        out.port = fields[1]
    except OverflowError:
        return False
    if not PyBytes_CheckExact(ip) or PyBytes_GET_SIZE(ip) != 4:
        return False
    memcpy(out.ip, PyBytes_AS_STRING(ip), 4)
    return True


cdef inline void set_text(Text *text, bytes data) noexcept:
    text.at = <const unsigned char *>PyBytes_AS_STRING(data)
    text.size = PyBytes_GET_SIZE(data)


cdef inline void dispatch_record(
    Target *target, BurstQueue queue, int64_t code, const Keys *keys, int64_t offset, Py_ssize_t size,
) noexcept:
    """Add a record to its queue and the index, which have room."""
    queue.add(offset, <uint32_t>size, code)
    if target.has_index and keys.count:
        index_record(&target.index, keys, offset, target.now_ms)
