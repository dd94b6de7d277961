"""Plain sends, compiled: from the fields of a request to the append and its response.

A send is plain if its topic was approved, its properties only ask to be stored, and its
flags are those of :mod:`roquet.model.plain_send`. Nothing has changed when a send is left to the
reference path, ``processor/send_message.py``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from roquet.format._layout cimport (
    BATCH_ENTRY_BODY_LENGTH_AT, BATCH_ENTRY_BYTES, BATCH_ENTRY_BYTES_MIN, BATCH_ENTRY_FLAG_AT,
    PROPERTIES_LENGTH_BYTES,
)
from roquet.format._record cimport Properties
from roquet.model._bytes cimport roquet_get32, roquet_put32, roquet_put64
from roquet.model._constants cimport IPV4_HOST_BYTES, PLAIN_SYS_FLAGS
from roquet.model._text cimport has_byte, is_text, roquet_find, roquet_is_utf8
from roquet.remoting._codes cimport ONEWAY_FLAG, SEND_BATCH_MESSAGE
from roquet.remoting._frame cimport (
    DIGITS_MAX, FRAME_HEAD, SLOT_END, SLOT_MAX_OFFSET, SLOT_MESSAGE_ID, SLOT_MIN_OFFSET,
    SLOT_OFFSET, SLOT_OPAQUE, SLOT_QUEUE_ID, SLOT_TRANSACTION_ID, SLOTS, set_number, write_hex,
)
from roquet.remoting._header cimport (
    F_BATCH, F_BORN, F_DEFAULT_QUEUES, F_MAX_RECONSUME, F_PROPERTIES, F_QUEUE_ID, F_RECONSUME,
    F_SEND_FLAG, F_SYS_FLAG, F_TOPIC, F_UNIT_MODE, has, is_simple, read_int, read_long,
)


cdef extern from "roquet/model/_plain_send.h":
    bint roquet_is_reserved(const unsigned char *at, size_t size) nogil


cdef enum:
    BATCH_MAX = 1024
    PAIRS_MAX = 32
    MESSAGE_ID = 32
    UNKNOWN = -1


cdef bint read_plain_properties(const Text *text, Properties *found) noexcept nogil:
    """Find the properties that dispatch needs; false if any is not plain, or the text is torn."""
    cdef const unsigned char *at = text.at
    cdef const unsigned char *end = at + text.size
    cdef const unsigned char *stop
    cdef Text names[PAIRS_MAX]
    cdef Text name, value
    cdef Py_ssize_t count = 0, other
    found.tags.size = found.keys.size = found.unique.size = 0
    found.is_plain = True
    if text.size and (has_byte(text, 0) or not roquet_is_utf8(at, text.size)):
        return False
    while at < end:
        stop = roquet_find(at, end, 1)
        if stop == end or stop == at or count == PAIRS_MAX:
            return False
        name.at, name.size = at, stop - at
        at = stop + 1
        stop = roquet_find(at, end, 2)
        if stop == end or stop == at:
            return False
        value.at, value.size = at, stop - at
        at = stop + 1
        if has_byte(&name, 2) or has_byte(&value, 1):
            return False
        for other in range(count):
            if names[other].size == name.size and memcmp(names[other].at, name.at, name.size) == 0:
                return False
        names[count] = name
        count += 1
        if is_text(&name, b"TAGS"):
            found.tags = value
        elif is_text(&name, b"KEYS"):
            found.keys = value
        elif is_text(&name, b"UNIQ_KEY"):
            found.unique = value
        elif is_text(&name, b"WAIT"):
            if not is_text(&value, b"true"):
                return False
        elif roquet_is_reserved(name.at, name.size):
            return False
    return is_simple(&found.tags) and is_simple(&found.keys) and is_simple(&found.unique)


cdef class Peer:
    """The other side of a connection, as records name it.

    Attributes:
        is_reader: Whether it recently pulled and sent nothing; set by the hot path's caller.
    """

    def __init__(self, connection, bytes ip not None, int32_t port):
        if len(ip) != 4:
            raise ValueError("not an IPv4 address")
        self.connection = connection
        memcpy(self.host.ip, PyBytes_AS_STRING(ip), 4)
        self.host.port = port


cdef class Sends:
    """Plain sends of all connections of one broker.

    Args:
        appender: The compiled append of the store.
        rules: What the reference path allows; see :class:`roquet.broker.hot.rules.HotRules`.
        store_host: Address bytes and port that records and message ids name.
        own_properties: The properties that the broker adds to a message.
        answers: Templates by the names ``sent`` and ``batch`` (no unique key), for JSON and binary
            headers.
        out: The buffer for responses that need not wait.
    """

    def __cinit__(self):
        self._ids = <unsigned char *>malloc(BATCH_MAX * (MESSAGE_ID + 1))
        self._batch = <Message *>malloc(BATCH_MAX * sizeof(Message))
        self._offsets = <int64_t *>malloc(BATCH_MAX * sizeof(int64_t))
        if not (self._ids and self._batch and self._offsets):
            raise MemoryError

    def __dealloc__(self):
        free(self._ids)
        free(self._batch)
        free(self._offsets)

    def __init__(self, PlainAppender appender not None, rules, store_host,
                 bytes own_properties not None, dict answers not None, Output out not None):
        cdef unsigned char host[IPV4_HOST_BYTES]
        cdef bytes ip = store_host[0]
        if len(ip) != 4:
            raise ValueError("not an IPv4 address")
        self._appender = appender
        self._rules = rules
        memcpy(self._store_host.ip, PyBytes_AS_STRING(ip), 4)
        self._store_host.port = store_host[1]
        memcpy(host, self._store_host.ip, 4)
        roquet_put32(host + 4, <uint32_t>self._store_host.port)
        write_hex(self._store_host_hex, host, IPV4_HOST_BYTES)
        self._own_properties = own_properties
        self._sent_json, self._sent_binary = answers["sent"]
        self._batch_json, self._batch_binary = answers["batch"]
        self._topics = {}
        self._sent_to = []
        self._out = out
        self.held = Output()

    def approve_topic(self, str topic not None, int32_t queues):
        """Accept sends to the first queues of a topic from now on."""
        cdef _Approved known = _Approved.__new__(_Approved)
        if not topic.isascii():
            return
        known.topic = topic.encode()
        known.name = topic
        known.queues = queues
        self._topics[known.topic] = known

    def forget_topics(self):
        """Accept no sends until topics are approved again."""
        self._topics.clear()
        self._last = None

    def drain(self):
        """Return what was sent since the last call, by topic: messages, bytes, counts by queue."""
        cdef _Approved each
        cdef list drained = []
        moved, self._sent_to = self._sent_to, []
        for each in moved:
            drained.append((each.name, *each.take()))
        return drained

    cdef void begin(self, int64_t now_ms, bint appends, bint dispatch, bint waits) noexcept:
        """Start a burst; the arguments are those of ``PlainRequests.take``."""
        self.messages = self.waiting_answers = 0
        self._may_send = UNKNOWN if appends else False
        self._waits = waits
        self._is_open = False
        self._target.now_ms = now_ms
        self._target.dispatch = dispatch

    cdef int end(self) except -1:
        """End the burst: report to the store what was appended."""
        if self._is_open:
            self._appender.close_target(&self._target)
        return 0

    cdef _Approved _approved(self, const Text *topic):
        """Return the entry of an approved topic, or ``None``."""
        cdef _Approved known = self._last
        if known is None or PyBytes_GET_SIZE(known.topic) != topic.size or memcmp(
            PyBytes_AS_STRING(known.topic), topic.at, topic.size
        ) != 0:
            known = self._topics.get((<const char *>topic.at)[:topic.size])
            if known is not None:
                self._last = known
        return known

    cdef _Topic _open(self, _Approved approved):
        """Return the store's entry of a topic, ready to append to, or ``None``."""
        if not self._is_open:
            if not self._appender.open_target(
                &self._target, self._target.now_ms, self._target.dispatch
            ):
                return None
            self._is_open = True
        return self._appender.topic(approved.name)

    cdef bint take(
        self, const Request *request, Fields *fields, const unsigned char *body,
        Py_ssize_t body_bytes, Peer peer,
    ) except -1:
        cdef const Text *values = fields.values
        cdef int32_t number, sys_flag
        cdef Message message
        cdef _Approved approved
        cdef _Topic topic
        cdef bint is_batch = request.code == SEND_BATCH_MESSAGE
        if not (
            read_int(&values[F_QUEUE_ID], &message.queue_id)
            and read_int(&values[F_SYS_FLAG], &sys_flag)
            and read_int(&values[F_SEND_FLAG], &message.flag)
            and read_long(&values[F_BORN], &message.born_ms)
            and read_int(&values[F_DEFAULT_QUEUES], &number)
        ):
            return False
        if has(fields, F_RECONSUME) and not (read_int(&values[F_RECONSUME], &number) and number == 0):
            return False
        if has(fields, F_MAX_RECONSUME) and not read_int(&values[F_MAX_RECONSUME], &number):
            return False
        if has(fields, F_UNIT_MODE) and not is_text(&values[F_UNIT_MODE], b"false"):
            return False
        if has(fields, F_BATCH):
            if not is_text(&values[F_BATCH], b"true" if is_batch else b"false"):
                return False
        elif is_batch:
            return False
        if sys_flag & ~PLAIN_SYS_FLAGS or not 0 < body_bytes <= self._appender.max_body:
            return False
        message.properties.size = 0
        if has(fields, F_PROPERTIES):
            message.properties = values[F_PROPERTIES]
        if not read_plain_properties(&message.properties, &message.found):
            return False
        if self._may_send == UNKNOWN:
            self._may_send = bool(self._rules.may_send())
        approved = self._approved(&values[F_TOPIC]) if self._may_send else None
        if approved is None or not 0 <= message.queue_id < approved.queues:
            return False
        message.sys_flag = <uint32_t>sys_flag
        message.reconsume_times = 0
        message.prepared_offset = 0
        message.born_host = peer.host
        message.store_host = self._store_host
        message.body.at = body
        message.body.size = body_bytes
        topic = self._open(approved)
        if topic is None:
            return False
        message.topic.at = <const unsigned char *>PyBytes_AS_STRING(topic.name)
        message.topic.size = PyBytes_GET_SIZE(topic.name)
        if is_batch:
            return self._send_batch(request, &message, topic, approved)
        message.own_properties.at = <const unsigned char *>PyBytes_AS_STRING(self._own_properties)
        message.own_properties.size = PyBytes_GET_SIZE(self._own_properties)
        if message.found.unique.size == 0:
            return False
        return self._send_one(request, &message, topic, approved)

    cdef bint _send_one(
        self, const Request *request, const Message *message, _Topic topic, _Approved approved
    ) except -1:
        cdef int64_t queue_offset, physical_offset
        cdef Py_ssize_t began = self._target.position
        self._reserve(request, message, 1)
        approved.reserve(self._sent_to, message.queue_id)
        if not self._appender.append_message(
            topic, message, &self._target, &queue_offset, &physical_offset
        ):
            return False
        self.messages += 1
        approved.count(message.queue_id, 1, self._target.position - began)
        self._answer_send(request, message, queue_offset, &physical_offset, 1)
        return True

    cdef bint _send_batch(
        self, const Request *request, const Message *whole, _Topic topic, _Approved approved
    ) except -1:
        """Append the messages of a batch, all or none."""
        cdef const unsigned char *at = whole.body.at
        cdef const unsigned char *end = at + whole.body.size
        cdef Message *message
        cdef Py_ssize_t count = 0, began = self._target.position
        cdef int64_t queue_offset
        while at < end:
            if count == BATCH_MAX or end - at < BATCH_ENTRY_BYTES_MIN:
                return False
            message = &self._batch[count]
            message[0] = whole[0]
            message.own_properties.size = 0
            message.flag = <int32_t>roquet_get32(at + BATCH_ENTRY_FLAG_AT)
            message.body.size = roquet_get32(at + BATCH_ENTRY_BODY_LENGTH_AT)
            message.body.at = at + BATCH_ENTRY_BYTES
            if message.body.size > end - at - BATCH_ENTRY_BYTES_MIN:
                return False
            at += BATCH_ENTRY_BYTES + message.body.size
            message.properties.size = at[0] << 8 | at[1]
            at += PROPERTIES_LENGTH_BYTES
            message.properties.at = at
            if message.properties.size > end - at:
                return False
            at += message.properties.size
            if not read_plain_properties(&message.properties, &message.found):
                return False
            count += 1
        self._reserve(request, whole, count)
        approved.reserve(self._sent_to, whole.queue_id)
        if not self._appender.append_batch(
            topic, self._batch, count, &self._target, &queue_offset, self._offsets
        ):
            return False
        self.messages += count
        approved.count(whole.queue_id, count, self._target.position - began)
        self._answer_send(request, whole, queue_offset, self._offsets, count)
        return True

    cdef Template _sent(self, const Request *request, const Message *message):
        if message.found.unique.size:
            return self._sent_binary if request.is_binary else self._sent_json
        return self._batch_binary if request.is_binary else self._batch_json

    cdef int _reserve(
        self, const Request *request, const Message *message, Py_ssize_t count
    ) except -1:
        """Make room for the response before appending: it must not fail afterwards."""
        cdef Output output = self.held if self._waits else self._out
        output.need(
            FRAME_HEAD + self._sent(request, message).literal_bytes + SLOTS * (4 + DIGITS_MAX)
            + message.found.unique.size + count * (MESSAGE_ID + 1)
        )
        return 0

    cdef int _answer_send(
        self, const Request *request, const Message *message, int64_t queue_offset,
        const int64_t *physical_offsets, Py_ssize_t count,
    ) except -1:
        cdef Text values[SLOTS]
        cdef unsigned char numbers[3][DIGITS_MAX]
        cdef unsigned char offset[8]
        cdef unsigned char *id_at = self._ids
        cdef Py_ssize_t i
        cdef Template template = self._sent(request, message)
        if request.flag & ONEWAY_FLAG:
            return 0
        for i in range(count):
            if i:
                id_at[0] = c","
                id_at += 1
            memcpy(id_at, self._store_host_hex, 16)
            roquet_put64(offset, <uint64_t>physical_offsets[i])
            write_hex(id_at + 16, offset, 8)
            id_at += MESSAGE_ID
        values[SLOT_END].size = 0
        values[SLOT_MIN_OFFSET].size = values[SLOT_MAX_OFFSET].size = 0
        values[SLOT_MESSAGE_ID].at = self._ids
        values[SLOT_MESSAGE_ID].size = id_at - self._ids
        set_number(&values[SLOT_OPAQUE], numbers[0], request.opaque)
        set_number(&values[SLOT_QUEUE_ID], numbers[1], message.queue_id)
        set_number(&values[SLOT_OFFSET], numbers[2], queue_offset)
        values[SLOT_TRANSACTION_ID] = message.found.unique
        if not self._waits:
            return self._out.add(template, values, request.opaque, 0)
        self.waiting_answers += 1
        return self.held.add(template, values, request.opaque, 0)
