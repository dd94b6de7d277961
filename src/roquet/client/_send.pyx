"""Plain sends of a producer, compiled: their frames and their responses.

A send is plain if its message has a body, perhaps a tag and keys of printable ASCII, and nothing
else; a response is plain if it only says that a message is stored, and where. Everything else is
left to the reference path (``sender.py``), whose bytes and results are the same.

Every length from the wire is checked against the remaining bytes before it is used.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from roquet.model._bytes cimport roquet_get32, roquet_put32
from roquet.model._text cimport Text, is_text
from roquet.remoting._codes cimport SEND_MESSAGE_V2
from roquet.remoting._frame cimport DIGITS_MAX, FRAME_HEAD, set_number, write_hex
from roquet.remoting._header cimport HEADER_MAX, Request, is_simple, read_header, read_int, read_long


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef enum:
    LITERALS = 5
    TEXT_MAX = 1 << 13  # two texts of this length stay far below the limit on properties
    SEPARATOR_BYTES = 6  # as escaped in JSON
    UNIQUE_ID_MAX = 64


cdef inline unsigned char *put(unsigned char *at, const void *data, Py_ssize_t size) noexcept:
    memcpy(at, data, size)
    return at + size


cdef inline unsigned char *put_property(
    unsigned char *at, const char *name, Py_ssize_t name_bytes, const Text *value
) noexcept:
    at = put(at, name, name_bytes)
    at = put(at, b"\\u0001", 6)
    at = put(at, value.at, value.size)
    return put(at, b"\\u0002", 6)


cdef inline Py_ssize_t property_bytes(Py_ssize_t name_bytes, const Text *value) noexcept:
    return name_bytes + SEPARATOR_BYTES + value.size + SEPARATOR_BYTES


cdef bint plain_text(object value, Text *out) except -1:
    """Return whether a text is valid in JSON without escaping; ``None`` and empty texts are."""
    out.size = 0
    if value is None:
        return True
    if type(value) is not str or not (<str>value).isascii():
        return False
    out.at = <const unsigned char *>PyUnicode_AsUTF8AndSize(value, &out.size)
    return out.size <= TEXT_MAX and is_simple(out)


cdef class SendTemplate:
    """The JSON header of sends to one queue, in five parts.

    Between them are: when the message was created, the user's flag, the properties with their
    quotes, and the opaque.

    Args:
        literals: The parts.
    """

    cdef list _data
    cdef Text _literals[LITERALS]
    cdef Py_ssize_t _size

    def __init__(self, list literals not None):
        cdef Py_ssize_t index = 0
        cdef bytes literal
        if len(literals) != LITERALS:
            raise ValueError(f"{len(literals)} parts")
        self._data = list(literals)
        self._size = 0
        for literal in self._data:
            self._literals[index].at = <const unsigned char *>PyBytes_AS_STRING(literal)
            self._literals[index].size = PyBytes_GET_SIZE(literal)
            self._size += self._literals[index].size
            index += 1

    cdef inline unsigned char *literal(self, unsigned char *at, Py_ssize_t index) noexcept:
        return put(at, self._literals[index].at, self._literals[index].size)

    cpdef bytes frame(
        self,
        object tags,
        object keys,
        str unique_id,
        object flag,
        int64_t born_ms,
        int32_t opaque,
        bytes body,
    ):
        """Return the frame of a send; ``None`` if the message is not plain."""
        cdef Text tag, key, unique, wait, born, number, mark
        cdef unsigned char born_digits[DIGITS_MAX]
        cdef unsigned char flag_digits[DIGITS_MAX]
        cdef unsigned char mark_digits[DIGITS_MAX]
        cdef Py_ssize_t header_bytes, body_bytes = PyBytes_GET_SIZE(body)
        cdef bytes made
        cdef unsigned char *at
        if type(flag) is not int or not -0x80000000 <= flag <= 0x7FFFFFFF:
            return None
        if not (plain_text(tags, &tag) and plain_text(keys, &key)):
            return None
        if not plain_text(unique_id, &unique):
            return None
        wait.at, wait.size = b"true", 4
        set_number(&born, born_digits, born_ms)
        set_number(&number, flag_digits, flag)
        set_number(&mark, mark_digits, opaque)
        header_bytes = self._size + born.size + number.size + mark.size + 2
        header_bytes += property_bytes(4, &wait) + property_bytes(8, &unique)
        if key.size:
            header_bytes += property_bytes(4, &key)
        if tag.size:
            header_bytes += property_bytes(4, &tag)
        made = PyBytes_FromStringAndSize(NULL, FRAME_HEAD + header_bytes + body_bytes)
        at = <unsigned char *>PyBytes_AS_STRING(made)
        roquet_put32(at, <uint32_t>(4 + header_bytes + body_bytes))
        roquet_put32(at + 4, <uint32_t>header_bytes)
        at = self.literal(at + FRAME_HEAD, 0)
        at = put(at, born.at, born.size)
        at = self.literal(at, 1)
        at = put(at, number.at, number.size)
        at = self.literal(at, 2)
        at = put(at, b'"', 1)
        if key.size:
            at = put_property(at, b"KEYS", 4, &key)
        if tag.size:
            at = put_property(at, b"TAGS", 4, &tag)
        at = put_property(at, b"WAIT", 4, &wait)
        at = put_property(at, b"UNIQ_KEY", 8, &unique)
        at = put(at, b'"', 1)
        at = self.literal(at, 3)
        at = put(at, mark.at, mark.size)
        at = self.literal(at, 4)
        put(at, PyBytes_AS_STRING(body), body_bytes)
        return made


cdef class PlainChannel:
    """Plain sends over one connection: writes their frames, and reads their responses.

    A response is a tuple: the offset message id, the queue, the queue offset, the transaction id or
    ``None``, the region or ``None``, and whether traces are on.

    Args:
        connection: The connection.
        loop: Its loop.
    """

    cdef object _connection
    cdef object _loop
    cdef object _outgoing
    cdef dict _waiting
    cdef dict _due
    cdef set _plain
    cdef bytes _scratch

    def __init__(self, object connection, object loop):
        self._connection = connection
        self._loop = loop
        self._outgoing = connection.outgoing
        self._waiting = self._outgoing.waiting
        self._due = self._outgoing.due
        self._plain = self._outgoing.plain
        self._scratch = PyBytes_FromStringAndSize(NULL, HEADER_MAX)

    cdef object free_opaque(self):
        """As :meth:`~roquet.remoting.outgoing.OutgoingRequests.free_opaque`."""
        cdef object opaque = self._outgoing.next_opaque
        if opaque in self._waiting:
            return self._outgoing.free_opaque()
        self._outgoing.next_opaque = (opaque + 1) & 0x7FFFFFFF
        return opaque

    cdef object send(self, object opaque, bytes frame, object timeout_ms):
        """Write a request; returns the future of its response."""
        cdef object future = self._loop.create_future()
        cdef object at_s = self._loop.time() + <double>timeout_ms / 1000
        self._connection.write_request(frame)
        self._plain.add(opaque)
        self._waiting[opaque] = future
        self._due[opaque] = (at_s, SEND_MESSAGE_V2, self._connection.remote_address, timeout_ms)
        if at_s < self._outgoing.timer_s:
            self._outgoing.set_timer(at_s)
        return future

    def take(self, object data, Py_ssize_t position):
        """Read plain responses from ``position`` on; returns where the first other frame is."""
        cdef Py_buffer view
        if self._plain:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                position = self.take_from(<const unsigned char *>view.buf, view.len, position)
            finally:
                PyBuffer_Release(&view)
        return position, 0, b""

    cdef Py_ssize_t take_from(
        self, const unsigned char *data, Py_ssize_t size, Py_ssize_t position
    ) except -1:
        cdef Request request
        cdef uint32_t length, header_bytes
        cdef object opaque, stored, future
        request.is_binary = False
        while size - position >= FRAME_HEAD:
            length = roquet_get32(data + position)
            header_bytes = roquet_get32(data + position + 4)
            # A body, or another kind of header, is not plain; nor is an invalid length.
            if header_bytes > HEADER_MAX or length != header_bytes + 4:
                break
            if size - position < 4 + <Py_ssize_t>length:
                break
            if not read_header(
                data + position + FRAME_HEAD, header_bytes,
                <unsigned char *>PyBytes_AS_STRING(self._scratch), &request,
            ):
                break
            if request.code != 0 or request.flag != 1:
                break
            opaque = request.opaque
            if opaque not in self._plain:
                break
            stored = stored_at(&request)
            if stored is None:
                break
            future = self._waiting.get(opaque)
            if future is None or future.done():
                break
            del self._waiting[opaque]
            self._due.pop(opaque, None)
            self._plain.discard(opaque)
            future.set_result(stored)
            position += 4 + <Py_ssize_t>length
        return position


cdef class PlainSender:
    """Sends the plain messages of one producer.

    Args:
        owner: Has the clock, the sender, the client and its remoting, the unique ids, the routes,
            and ``target``, which handles a queue that was not sent to yet.
        bytes_max: The longest body.
        timeout_ms: The default timeout of a send.
        attempt_ms: How long its first attempt may take.
    """

    cdef object _owner
    cdef object _client
    cdef object _remoting
    cdef object _routes
    cdef object _clock
    cdef object _unique_ids
    cdef object _factory
    cdef object _in_flight
    cdef dict _topics
    cdef dict _published
    cdef dict _indexes
    cdef dict _targets
    cdef object _changes
    cdef Py_ssize_t _bytes_max
    cdef object _timeout_ms
    cdef object _attempt_ms

    def __init__(self, object owner, Py_ssize_t bytes_max, object timeout_ms, object attempt_ms):
        self._owner = owner
        self._client = owner.client
        self._remoting = owner.client.remoting
        self._routes = owner.client.routes
        self._clock = owner.client.clock
        self._unique_ids = owner.client.unique_ids
        self._factory = owner.client.unique_ids.factory
        self._in_flight = owner.sender.in_flight
        self._topics = owner.outgoing.topics
        self._published = owner.client.routes.published
        self._indexes = owner.sender.round.indexes
        self._targets = {}
        self._changes = None
        self._bytes_max = bytes_max
        self._timeout_ms = timeout_ms
        self._attempt_ms = attempt_ms

    def begin(self, object message, object timeout_ms):
        """Send a message.

        Returns:
            The future of the response, the message, its unique id, its queue, the broker's address, the
            connection, the timeout and the start time; ``None`` if the message is not plain or
            cannot be sent at once.
        """
        cdef object body = message.body
        cdef object topic = message.topic
        cdef object route, queues, queue, connection, now_ms, opaque, frame, future, index, began_ns
        cdef PlainChannel channel
        cdef object attempt_ms
        cdef SendTemplate template
        cdef str unique_id, address
        cdef tuple target
        if type(body) is not bytes or not 0 < PyBytes_GET_SIZE(body) <= self._bytes_max:
            return None
        if (
            message.properties
            or message.wait_store_ok is not True
            or message.sharding_key
            or message.delay_level
            or message.delay_ms is not None
            or message.deliver_at_ms is not None
            or message.system_properties
            or topic not in self._topics
            or self._client.is_closed
            or (timeout_ms is not None and timeout_ms < 1)
        ):
            return None
        route = self._published.get(topic)
        index = self._indexes.get(topic)
        if route is None or index is None:
            return None
        queues = route.queues
        if not queues:
            return None
        index = self._indexes[topic] = (index + 1) & 0x7FFFFFFF
        queue = queues[index % len(queues)]
        if self._routes.changes != self._changes:
            self._targets.clear()
            self._changes = self._routes.changes
        target = self._targets.get(queue)
        if target is None:
            target = self._owner.target(message, queue)
            if target is None:
                return None
            self._targets[queue] = target
        template = target[0]
        address = target[1]
        connection = None if template is None else self._remoting.take_connection(address)
        if connection is None:
            return None
        channel = connection.input.hot_reader
        now_ms = self._clock.now_ms()
        unique_id = self.unique_id(now_ms)
        opaque = channel.free_opaque()
        frame = template.frame(
            message.tags, message.keys, unique_id, message.flag, now_ms, opaque, body
        )
        if frame is None or not self._in_flight.try_enter(PyBytes_GET_SIZE(body)):
            self._remoting.give_back_connection(address, connection)
            return None
        began_ns = self._clock.monotonic_ns()
        if timeout_ms is None:
            timeout_ms = self._timeout_ms
        attempt_ms = self._attempt_ms if self._attempt_ms < timeout_ms else timeout_ms
        future = channel.send(opaque, frame, attempt_ms)
        return future, message, unique_id, queue, address, connection, timeout_ms, began_ns

    cdef str unique_id(self, object now_ms):
        """Return the next id, as :class:`~roquet.client.ids.UniqueIds` generates it."""
        cdef int64_t millis = now_ms, month_start = self._unique_ids.month_start_ms
        cdef uint32_t rest = <uint32_t>(millis - month_start)
        cdef uint32_t counter
        cdef str prefix
        cdef const char *text
        cdef unsigned char tail[6]
        cdef char made[UNIQUE_ID_MAX]
        cdef Py_ssize_t size
        if not month_start <= millis < <int64_t>self._unique_ids.month_end_ms:
            return self._unique_ids.make(now_ms)
        counter = (<uint32_t>self._factory.counter + 1) & 0xFFFF
        self._factory.counter = counter
        prefix = self._factory.prefix
        text = PyUnicode_AsUTF8AndSize(prefix, &size)
        if size > UNIQUE_ID_MAX - 12:
            raise ValueError("prefix")
        memcpy(made, text, size)
        roquet_put32(tail, rest)
        tail[4], tail[5] = <unsigned char>(counter >> 8), <unsigned char>counter
        write_hex(<unsigned char *>made + size, tail, 6)
        return PyUnicode_DecodeASCII(made, size + 12, NULL)


cdef tuple stored_at(const Request *request):
    """Return the content of a response; ``None`` if it is not plain."""
    cdef const Text *name
    cdef const Text *value
    cdef Py_ssize_t pair
    cdef int32_t queue_id = -1
    cdef int64_t queue_offset = -1
    cdef str message_id = None, transaction_id = None, region = None
    cdef bint trace_on = True
    for pair in range(request.pairs):
        name = &request.names[pair]
        value = &request.values[pair]
        if is_text(name, b"msgId"):
            message_id = text_of(value)
        elif is_text(name, b"queueId"):
            if not read_int(value, &queue_id):
                return None
        elif is_text(name, b"queueOffset"):
            if not read_long(value, &queue_offset):
                return None
        elif is_text(name, b"transactionId"):
            transaction_id = text_of(value)
        elif is_text(name, b"MSG_REGION"):
            region = text_of(value)
        elif is_text(name, b"TRACE_ON"):
            trace_on = not is_text(value, b"false")
        else:
            return None
    if message_id is None or queue_id < 0 or queue_offset < 0:
        return None
    return message_id, queue_id, queue_offset, transaction_id, region, trace_on


cdef inline str text_of(const Text *text):
    return PyUnicode_DecodeASCII(<const char *>text.at, text.size, NULL)
