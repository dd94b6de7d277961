# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled lane of the wire: frames of plain sends, pulls and commits, from bytes to answers.

Owns nothing but its notes of what the reference path allows (topics to send to, plans of pulls).
It takes frames from the front of what a read brought and stops at the first that is not plain,
which the reference path then handles as if there were no lane. What it answers and what it writes
is what the reference path would have, byte for byte.

Plain are requests that ``_frame.pyx`` can read, about a topic or with a plan that the reference
path has approved:

* a send of one message, or of a batch, whose properties ask for nothing but to be stored,
* a pull of messages that are there, in memory and undamaged,
* a commit of an offset.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from roquet._counts cimport Counted, QueueCounts
from roquet._fast cimport Host, Lane, Message, Record, Target, Text, _Topic, java_hash, read_record
from roquet._frame cimport (
    DIGITS_MAX, F_BATCH, F_BORN, F_COMMIT_OFFSET, F_COMMITTED, F_DEFAULT_QUEUES, F_EXPRESSION_TYPE,
    F_GROUP, F_MAX_BYTES, F_MAX_MESSAGES, F_MAX_RECONSUME, F_OFFSET, F_PROPERTIES, F_QUEUE_ID,
    F_RECONSUME, F_SEND_FLAG, F_SUBSCRIPTION, F_SUSPEND, F_SYS_FLAG, F_TOPIC, F_UNIT_MODE,
    F_VERSION, FRAME_HEAD, HEADER_MAX, SLOT_END, SLOT_MAX_OFFSET, SLOT_MESSAGE_ID, SLOT_MIN_OFFSET,
    SLOT_OFFSET, SLOT_OPAQUE, SLOT_QUEUE_ID, SLOT_TRANSACTION_ID, SLOTS, Fields, Output, Request,
    Template, bind_commit, bind_letters, bind_pull, bind_send, has, is_simple, is_text, read_header,
    read_int, read_long, read_plain_properties, set_number, write_hex,
)


cdef extern from "_bytes.h":
    uint32_t roquet_get32(const unsigned char *at) nogil
    uint64_t roquet_get64(const unsigned char *at) nogil
    void roquet_put32(unsigned char *at, uint32_t value) nogil
    void roquet_put64(unsigned char *at, uint64_t value) nogil


cdef extern from "<sys/uio.h>":
    cdef struct iovec:
        void *iov_base
        size_t iov_len
    int RWF_NOWAIT
    Py_ssize_t preadv2(int fd, const iovec *parts, int count, int64_t position, int flags) nogil


cdef extern from "<sys/mman.h>":
    int mincore(void *at, size_t size, unsigned char *pages) nogil


cdef enum:
    FRAME_MAX = 1 << 24
    BATCH_MAX = 1024
    BATCH_ENTRY_MIN = 22
    UNIT = 20
    UNITS_MAX = 2048
    FILLER_SIZE = 0x7FFFFFFF
    PAGE = 4096
    PAGES_A_LOOK = 64
    PLANS_MAX = 4096
    PLAN_TEXT_MAX = 1024
    MESSAGE_ID = 32

    SEND = 10
    PULL = 11
    COMMIT = 15
    SEND_V2 = 310
    SEND_BATCH = 320
    LITE_PULL = 361
    ONEWAY_FLAG = 2
    STORED_SYS_FLAGS = 0x703
    COMMIT_OFFSET_FLAG = 1
    UNKNOWN = -1

    SYS_FLAG_AT = 36
    BORN_HOST_AT = 48
    BORN_V6_FLAG = 0x10


cdef struct Pulled:
    int64_t first_offset
    int64_t next_offset
    int64_t min_offset
    int64_t max_offset
    int64_t log_end
    Py_ssize_t count
    int64_t total_bytes
    Py_ssize_t chosen[UNITS_MAX]


# -- what the reference path allows ----------------------------------------------------------------


cdef class Peer:
    """The other side of a connection, as records name it.

    Attributes:
        is_reader: Whether it has last pulled and sent nothing; whoever calls the lane keeps it.
    """

    cdef Host _host
    cdef readonly object connection
    cdef public bint is_reader

    def __init__(self, connection, bytes ip not None, int32_t port):
        if len(ip) != 4:
            raise ValueError("not an IPv4 address")
        self.connection = connection
        memcpy(self._host.ip, PyBytes_AS_STRING(ip), 4)
        self._host.port = port


cdef class Plan(Counted):
    """How pulls that look the same but for their offsets are answered.

    Args:
        group: The group.
        topic: The topic.
        key: Where the group's offsets of the topic are kept.
        queues: How many queues may be read.
        is_wanted: Tells by tags code whether a message is wanted; ``None`` for all.
        json: The answer with a JSON header.
        binary: The answer with a binary header.
    """

    cdef readonly str group
    cdef readonly str topic
    cdef readonly str key
    cdef bytes _topic
    cdef int32_t _queues
    cdef object _is_wanted
    cdef Template _json
    cdef Template _binary

    def __init__(self, str group not None, str topic not None, str key not None, int32_t queues,
                 is_wanted, Template json not None, Template binary not None):
        self.group = group
        self.topic = topic
        self.key = key
        self._topic = topic.encode()
        self._queues = queues
        self._is_wanted = is_wanted
        self._json = json
        self._binary = binary


cdef class _Approved(Counted):
    cdef bytes topic
    cdef str name
    cdef int32_t queues


# -- the lane --------------------------------------------------------------------------------------


cdef class Wire:
    """Sends, pulls and commits of all connections of one broker.

    Args:
        lane: The compiled lane of the store.
        store: The store.
        rules: What the reference path allows; see :class:`roquet.broker.lane.Rules`.
        store_host: Address bytes and port that records and message ids name.
        own_properties: What the broker adds to the properties of a message.
        answers: Templates by the names ``sent``, ``batch`` (no unique key) and ``committed``, for
            JSON and binary headers.
    """

    cdef Lane _lane
    cdef object _store
    cdef object _rules
    cdef dict _table
    cdef Host _store_host
    cdef unsigned char _store_host_hex[16]
    cdef bytes _own_properties
    cdef Template _sent_json
    cdef Template _sent_binary
    cdef Template _batch_json
    cdef Template _batch_binary
    cdef Template _committed_json
    cdef Template _committed_binary
    cdef dict _topics
    cdef _Approved _last
    cdef dict _plans
    cdef list _sent_to
    cdef list _pulled_by
    cdef unsigned char *_scratch
    cdef unsigned char *_key
    cdef unsigned char *_units
    cdef unsigned char *_ids
    cdef Message *_batch
    cdef int64_t *_offsets
    cdef Output _out
    cdef Output _held
    cdef Target _target
    cdef bint _is_open
    cdef int _may_send
    cdef bint _waits
    cdef Py_ssize_t _memory_bytes
    cdef Py_ssize_t _scanned_bytes
    cdef Py_ssize_t _transfer_bytes
    cdef Py_ssize_t _transfer_count
    cdef Py_ssize_t _pull_max
    cdef bint _reads_tail
    cdef readonly Py_ssize_t messages
    cdef readonly Py_ssize_t waiting_answers
    cdef readonly Py_ssize_t gets
    cdef readonly Py_ssize_t got_messages

    def __cinit__(self):
        self._scratch = <unsigned char *>malloc(HEADER_MAX)
        self._key = <unsigned char *>malloc(HEADER_MAX + 64)
        self._units = <unsigned char *>malloc(UNITS_MAX * UNIT)
        self._ids = <unsigned char *>malloc(BATCH_MAX * (MESSAGE_ID + 1))
        self._batch = <Message *>malloc(BATCH_MAX * sizeof(Message))
        self._offsets = <int64_t *>malloc(BATCH_MAX * sizeof(int64_t))
        if not (
            self._scratch and self._key and self._units and self._ids and self._batch
            and self._offsets
        ):
            raise MemoryError

    def __dealloc__(self):
        free(self._scratch)
        free(self._key)
        free(self._units)
        free(self._ids)
        free(self._batch)
        free(self._offsets)

    def __init__(self, Lane lane not None, store, rules, store_host,
                 bytes own_properties not None, dict answers not None, *,
                 Py_ssize_t memory_bytes, Py_ssize_t pull_max):
        cdef unsigned char host[8]
        cdef bytes ip = store_host[0]
        config = store.config
        if len(ip) != 4:
            raise ValueError("not an IPv4 address")
        self._lane = lane
        self._store = store
        self._rules = rules
        self._table = store.queues.table
        memcpy(self._store_host.ip, PyBytes_AS_STRING(ip), 4)
        self._store_host.port = store_host[1]
        memcpy(host, self._store_host.ip, 4)
        roquet_put32(host + 4, <uint32_t>self._store_host.port)
        write_hex(self._store_host_hex, host, 8)
        self._own_properties = own_properties
        self._sent_json, self._sent_binary = answers["sent"]
        self._batch_json, self._batch_binary = answers["batch"]
        self._committed_json, self._committed_binary = answers["committed"]
        self._topics = {}
        self._plans = {}
        self._sent_to = []
        self._pulled_by = []
        self._out = Output()
        self._held = Output()
        self._memory_bytes = memory_bytes
        self._pull_max = pull_max
        self._scanned_bytes = config.filter_message_bytes_max
        self._transfer_bytes = config.transfer_bytes_in_memory_max
        self._transfer_count = config.transfer_count_in_memory_max
        self._reads_tail = store.queues.uses_plain_files

    def approve_topic(self, str topic not None, int32_t queues):
        """Take sends to the first queues of a topic from now on."""
        cdef _Approved known = _Approved.__new__(_Approved)
        if not topic.isascii():
            return
        known.topic = topic.encode()
        known.name = topic
        known.queues = queues
        self._topics[known.topic] = known

    def forget_topics(self):
        """Take no sends any more until topics are approved anew."""
        self._topics.clear()
        self._last = None

    def forget_plans(self):
        """Ask again how pulls are to be answered."""
        self._plans.clear()

    def drain_sends(self):
        """What was sent since the last call, by topic: messages, bytes, counts by queue."""
        cdef _Approved each
        cdef list drained = []
        moved, self._sent_to = self._sent_to, []
        for each in moved:
            drained.append((each.name, *each.take()))
        return drained

    def drain_pulls(self):
        """What was pulled since the last call, by plan: messages, bytes, counts by queue.

        The counts of a queue: how many pulls, and how far the last of them was behind the end of
        the log, in bytes and in time.
        """
        cdef Plan each
        cdef list drained = []
        moved, self._pulled_by = self._pulled_by, []
        for each in moved:
            drained.append((each, *each.take()))
        return drained

    def take(self, const unsigned char[::1] data not None, Py_ssize_t position, Peer peer not None,
             *, int64_t now_ms, bint appends, bint dispatch, bint waits, bint pulls,
             Py_ssize_t max_output):
        """Handle plain frames from ``position`` on.

        Args:
            data: What was read.
            position: Where the first frame starts.
            peer: Who sent it.
            now_ms: The store timestamp, or -1.
            appends: Whether anything may be appended.
            dispatch: Whether what is appended is dispatched at once.
            waits: Whether the answers to sends are to be kept back.
            pulls: Whether pulls are answered on this port.
            max_output: No further frame is taken once the answers are as long.

        Returns:
            The position of the first frame that was left, how many frames were taken, the answers,
            and those that are to wait. ``messages``, ``gets`` and ``got_messages`` tell more.
        """
        cdef Py_ssize_t size = data.shape[0]
        cdef Py_ssize_t length, header_bytes, count = 0
        cdef const unsigned char *frame
        cdef Request request
        self.messages = self.waiting_answers = self.gets = self.got_messages = 0
        self._may_send = UNKNOWN if appends else False
        self._waits = waits
        self._is_open = False
        self._target.now_ms = now_ms
        self._target.dispatch = dispatch
        try:
            while 0 <= position <= size - FRAME_HEAD and self._out.used < max_output:
                frame = &data[position]
                length = <int32_t>roquet_get32(frame)
                header_bytes = frame[5] << 16 | frame[6] << 8 | frame[7]
                if not 4 <= length <= size - position - 4 or length > FRAME_MAX - 4:
                    break
                if frame[4] > 1 or header_bytes > length - 4 or header_bytes > HEADER_MAX:
                    break
                request.is_binary = frame[4] == 1
                if not read_header(frame + FRAME_HEAD, header_bytes, self._scratch, &request):
                    break
                if request.flag & ~ONEWAY_FLAG or not self._guarded(
                    &request, frame, 4 + length, header_bytes, peer, pulls
                ):
                    break
                position += 4 + length
                count += 1
        finally:
            if self._is_open:
                self._lane.close_target(&self._target)
        return position, count, self._out.take(), self._held.take()

    cdef bint _guarded(
        self, const Request *request, const unsigned char *frame, Py_ssize_t size,
        Py_ssize_t header_bytes, Peer peer, bint pulls,
    ) except -1:
        """As :meth:`_handle`; an error is reported, and leaves the frame to the reference path."""
        cdef Py_ssize_t out_used = self._out.used, held_used = self._held.used
        try:
            return self._handle(request, frame, size, header_bytes, peer, pulls)
        except Exception as error:
            self._out.used = out_used
            self._held.used = held_used
            self._rules.failed(error)
            return False

    cdef bint _handle(
        self, const Request *request, const unsigned char *frame, Py_ssize_t size,
        Py_ssize_t header_bytes, Peer peer, bint pulls,
    ) except -1:
        """Handle one request; false leaves it to the reference path, and nothing has changed."""
        cdef const unsigned char *body = frame + FRAME_HEAD + header_bytes
        cdef Py_ssize_t body_bytes = size - FRAME_HEAD - header_bytes
        cdef Fields fields
        if request.code == SEND_V2 or request.code == SEND_BATCH:
            return bind_letters(request, &fields) and self._send(
                request, &fields, body, body_bytes, peer
            )
        if request.code == SEND:
            return bind_send(request, &fields) and self._send(
                request, &fields, body, body_bytes, peer
            )
        if request.code == PULL or request.code == LITE_PULL:
            return pulls and request.flag == 0 and bind_pull(request, &fields) and self._pull(
                request, &fields, frame, size, peer
            )
        if request.code == COMMIT:
            return bind_commit(request, &fields) and self._commit(request, &fields)
        return False

    # -- sends ------------------------------------------------------------------------------------

    cdef _Approved _approved(self, const Text *topic):
        """The note of a topic that may be sent to, or ``None``."""
        cdef _Approved known = self._last
        if known is None or PyBytes_GET_SIZE(known.topic) != topic.size or memcmp(
            PyBytes_AS_STRING(known.topic), topic.at, topic.size
        ) != 0:
            known = self._topics.get((<const char *>topic.at)[:topic.size])
            if known is not None:
                self._last = known
        return known

    cdef _Topic _open(self, _Approved approved):
        """The store's note of a topic, ready to append to, or ``None``."""
        if not self._is_open:
            if not self._lane.open_target(
                &self._target, self._target.now_ms, self._target.dispatch
            ):
                return None
            self._is_open = True
        return self._lane.topic(approved.name)

    cdef bint _send(
        self, const Request *request, Fields *fields, const unsigned char *body,
        Py_ssize_t body_bytes, Peer peer,
    ) except -1:
        cdef const Text *values = fields.values
        cdef int32_t number, sys_flag
        cdef Message message
        cdef _Approved approved
        cdef _Topic topic
        cdef bint is_batch = request.code == SEND_BATCH
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
        if sys_flag & ~STORED_SYS_FLAGS or not 0 < body_bytes <= self._lane._max_body:
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
        message.born_host = peer._host
        message.store_host = self._store_host
        message.body.at = body
        message.body.size = body_bytes
        topic = self._open(approved)
        if topic is None:
            return False
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
        if not self._lane.append_message(
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
            if count == BATCH_MAX or end - at < BATCH_ENTRY_MIN:
                return False
            message = &self._batch[count]
            message[0] = whole[0]
            message.own_properties.size = 0
            message.flag = <int32_t>roquet_get32(at + 12)
            message.body.size = roquet_get32(at + 16)
            message.body.at = at + 20
            if message.body.size > end - at - BATCH_ENTRY_MIN:
                return False
            at += 20 + message.body.size
            message.properties.size = at[0] << 8 | at[1]
            message.properties.at = at + 2
            at += 2
            if message.properties.size > end - at:
                return False
            at += message.properties.size
            if not read_plain_properties(&message.properties, &message.found):
                return False
            count += 1
        self._reserve(request, whole, count)
        approved.reserve(self._sent_to, whole.queue_id)
        if not self._lane.append_batch(
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
        """Make room for the answer before anything is appended: it must not fail afterwards."""
        cdef Output output = self._held if self._waits else self._out
        output.need(
            FRAME_HEAD + self._sent(request, message)._literal_bytes + SLOTS * (4 + DIGITS_MAX)
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
        return self._held.add(template, values, request.opaque, 0)

    # -- commits ----------------------------------------------------------------------------------

    cdef bint _commit(self, const Request *request, Fields *fields) except -1:
        cdef const Text *values = fields.values
        cdef int32_t queue_id
        cdef int64_t offset
        cdef Text slots[SLOTS]
        cdef unsigned char number[DIGITS_MAX]
        cdef Py_ssize_t i
        if not read_int(&values[F_QUEUE_ID], &queue_id) or not read_long(
            &values[F_COMMITTED], &offset
        ):
            return False
        if not is_simple(&values[F_GROUP]) or not is_simple(&values[F_TOPIC]):
            return False
        if not self._rules.commit(
            (<const char *>values[F_GROUP].at)[:values[F_GROUP].size].decode("ascii"),
            (<const char *>values[F_TOPIC].at)[:values[F_TOPIC].size].decode("ascii"),
            queue_id, offset,
        ):
            return False
        if not request.flag & ONEWAY_FLAG:
            for i in range(SLOTS):
                slots[i].size = 0
            set_number(&slots[SLOT_OPAQUE], number, request.opaque)
            self._out.add(
                self._committed_binary if request.is_binary else self._committed_json,
                slots, request.opaque, 0,
            )
        return True

    # -- pulls ------------------------------------------------------------------------------------

    cdef Plan _plan(self, const Request *request, Fields *fields, int32_t sys_flag,
                    const unsigned char *frame, Py_ssize_t size, Peer peer):
        """The plan of pulls with these names and flags, or ``None``."""
        cdef unsigned char *at = self._key
        cdef const Text *text
        cdef bytes key
        cdef int place
        roquet_put32(at, <uint32_t>request.code)
        roquet_put32(at + 4, <uint32_t>sys_flag)
        at += 8
        for place in (F_GROUP, F_TOPIC, F_VERSION, F_SUBSCRIPTION, F_EXPRESSION_TYPE):
            text = &fields.values[place]
            if has(fields, place) and text.size > PLAN_TEXT_MAX:
                return None
            at[0] = has(fields, place)
            at += 1
            if has(fields, place):
                roquet_put32(at, <uint32_t>text.size)
                memcpy(at + 4, text.at, text.size)
                at += 4 + text.size
        key = (<const char *>self._key)[:at - self._key]
        if key not in self._plans:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            self._plans[key] = self._rules.plan((<const char *>frame)[:size], peer.connection)
        return self._plans.get(key)

    cdef bint _pull(
        self, const Request *request, Fields *fields, const unsigned char *frame,
        Py_ssize_t size, Peer peer,
    ) except -1:
        cdef const Text *values = fields.values
        cdef int32_t queue_id, sys_flag, max_messages, number
        cdef int64_t offset, commit_offset, ignored
        cdef Pulled pulled
        cdef Plan plan
        cdef object queue
        if not (
            read_int(&values[F_QUEUE_ID], &queue_id)
            and read_int(&values[F_SYS_FLAG], &sys_flag)
            and read_long(&values[F_OFFSET], &offset)
            and read_int(&values[F_MAX_MESSAGES], &max_messages)
            and read_long(&values[F_COMMIT_OFFSET], &commit_offset)
            and read_long(&values[F_SUSPEND], &ignored)
            and read_long(&values[F_VERSION], &ignored)
        ):
            return False
        if has(fields, F_MAX_BYTES) and not read_int(&values[F_MAX_BYTES], &number):
            return False
        if max_messages < 1:
            return False
        plan = self._plan(request, fields, sys_flag & ~COMMIT_OFFSET_FLAG, frame, size, peer)
        if plan is None or not 0 <= queue_id < plan._queues:
            return False
        queue = self._table.get(plan.topic)
        if queue is not None:
            queue = (<dict>queue).get(queue_id)
        if queue is None or not self._rules.may_pull(plan, queue_id):
            return False
        pulled.min_offset = queue.min_queue_offset
        pulled.max_offset = queue.max_queue_offset
        pulled.next_offset = offset
        if not pulled.min_offset <= offset < pulled.max_offset:
            return False
        if not self._choose(plan, queue, min(max_messages, self._pull_max), &pulled):
            return False
        plan.reserve(self._pulled_by, queue_id)
        if not self._gather(request, plan, queue_id, &pulled):
            return False
        self._rules.pulled(
            plan, queue_id, pulled.next_offset,
            commit_offset if sys_flag & COMMIT_OFFSET_FLAG else None,
        )
        self.gets += 1
        self.got_messages += pulled.count
        plan.count(queue_id, pulled.count, pulled.total_bytes)
        return True

    cdef bint _choose(self, Plan plan, object queue, Py_ssize_t max_messages, Pulled *pulled) except -1:
        """Choose the entries that an answer holds, by the limits of MessageReader."""
        cdef int64_t offset = pulled.next_offset
        cdef int64_t log_end = self._lane._log.max_offset
        cdef Py_ssize_t scanned = max(self._scanned_bytes // UNIT, max_messages)
        cdef Py_ssize_t units, number
        cdef int64_t size
        cdef const unsigned char *unit
        if plan._is_wanted is None:
            scanned = min(max_messages, self._transfer_count)
        if scanned > UNITS_MAX:
            return False
        scanned = min(scanned, pulled.max_offset - offset)
        units = self._read_units(queue, offset, scanned)
        pulled.log_end = log_end
        pulled.count = pulled.total_bytes = 0
        for number in range(units):
            unit = self._units + number * UNIT
            size = <int32_t>roquet_get32(unit + 8)
            if size <= 0 or size == FILLER_SIZE:
                return False
            if log_end - <int64_t>roquet_get64(unit) > self._memory_bytes:
                return False
            if pulled.count and (
                pulled.count == max_messages
                or pulled.count >= self._transfer_count
                or pulled.total_bytes + size > self._transfer_bytes
            ):
                break
            pulled.next_offset = offset + number + 1
            if plan._is_wanted is not None and not plan._is_wanted(
                <int64_t>roquet_get64(unit + 12), None
            ):
                continue
            pulled.chosen[pulled.count] = number
            pulled.count += 1
            pulled.total_bytes += size
        pulled.first_offset = offset
        return pulled.count > 0 and pulled.total_bytes < FRAME_MAX // 2

    cdef Py_ssize_t _read_units(self, object queue, int64_t offset, Py_ssize_t count) except -1:
        """Read entries of one file of a queue that are in memory; returns how many."""
        cdef object tail = queue._tail
        cdef int64_t position = offset * UNIT - <int64_t>queue._tail_start
        cdef int64_t file_bytes = queue._file_bytes
        cdef iovec part
        cdef bytes data
        cdef int fd
        if self._reads_tail and tail is not None and 0 <= position < file_bytes:
            fd = tail.fd
            part.iov_base = self._units
            part.iov_len = min(count * UNIT, file_bytes - position)
            if fd >= 0 and preadv2(fd, &part, 1, position, RWF_NOWAIT) == <Py_ssize_t>part.iov_len:
                return part.iov_len // UNIT
        data = queue.read_cached_units(offset, count)
        if data is None:
            return 0
        count = min(PyBytes_GET_SIZE(data) // UNIT, count)
        memcpy(self._units, PyBytes_AS_STRING(data), count * UNIT)
        return count

    cdef bint _gather(
        self, const Request *request, Plan plan, int32_t queue_id, const Pulled *pulled
    ) except -1:
        """Write the answer; false, and none written, if a record is not in memory or not whole."""
        cdef Py_ssize_t before = self._out.used
        cdef Text values[SLOTS]
        cdef unsigned char numbers[4][DIGITS_MAX]
        cdef const unsigned char *base = NULL
        cdef const unsigned char *unit
        cdef const unsigned char *record = NULL
        cdef const unsigned char *looked
        cdef const unsigned char *in_memory = NULL
        cdef unsigned char *into
        cdef int64_t start = 0, limit = 0, physical
        cdef Py_ssize_t number, size
        cdef object segment = None
        for number in range(SLOTS):
            values[number].size = 0
        set_number(&values[SLOT_OPAQUE], numbers[0], request.opaque)
        set_number(&values[SLOT_OFFSET], numbers[1], pulled.next_offset)
        set_number(&values[SLOT_MIN_OFFSET], numbers[2], pulled.min_offset)
        set_number(&values[SLOT_MAX_OFFSET], numbers[3], pulled.max_offset)
        self._out.add(plan._binary if request.is_binary else plan._json, values, request.opaque,
                      pulled.total_bytes)
        into = self._out.need(pulled.total_bytes)
        for number in range(pulled.count):
            unit = self._units + pulled.chosen[number] * UNIT
            physical = <int64_t>roquet_get64(unit)
            size = <int32_t>roquet_get32(unit + 8)
            if segment is None or not start <= physical < limit:
                segment = self._lane._log.queue.find(physical)
                if segment is None:
                    break
                start = segment.start_offset
                limit = start + <int64_t>segment.read_limit
                base = <const unsigned char *><size_t>segment.address
                in_memory = record = base
            if physical < start or physical + size > limit or base + (physical - start) < record:
                break
            record = base + (physical - start)
            # One look tells of many records, because they follow and lie near each other.
            while in_memory < record + size:
                looked = record if in_memory < record else in_memory
                in_memory = resident_until(looked, base + (limit - start))
                if in_memory <= looked:
                    break
            if in_memory < record + size or not fits_entry(
                record, size, unit, plan._topic, queue_id,
                pulled.first_offset + pulled.chosen[number],
            ):
                break
            memcpy(into, record, size)
            into += size
        else:
            self._out.used += pulled.total_bytes
            self._note_fall(&plan._by_queue[queue_id], pulled, record)
            return True
        self._out.used = before
        return False


    cdef void _note_fall(
        self, QueueCounts *queue, const Pulled *pulled, const unsigned char *record
    ) noexcept:
        """Take note of how far the last entry, and the last record, are behind the log's end."""
        cdef Py_ssize_t last = pulled.next_offset - 1 - pulled.first_offset
        cdef bint is_v6 = roquet_get32(record + SYS_FLAG_AT) & BORN_V6_FLAG != 0
        queue.fall_bytes = pulled.log_end - <int64_t>roquet_get64(self._units + last * UNIT)
        if self._target.now_ms >= 0:
            queue.fall_ms = self._target.now_ms - <int64_t>roquet_get64(
                record + BORN_HOST_AT + (20 if is_v6 else 8)
            )


cdef const unsigned char *resident_until(
    const unsigned char *at, const unsigned char *end
) noexcept nogil:
    """Up to where the pages of a mapped range are in memory, at most a number of pages further."""
    cdef unsigned char pages[PAGES_A_LOOK]
    cdef size_t start = <size_t>at - <size_t>at % PAGE
    cdef size_t count = min((<size_t>end - start + PAGE - 1) // PAGE, <size_t>PAGES_A_LOOK)
    cdef size_t page = 0
    if mincore(<void *>start, count * PAGE, pages) != 0:
        return at
    while page < count and pages[page] & 1:
        page += 1
    return <const unsigned char *>(start + page * PAGE)


cdef bint fits_entry(
    const unsigned char *at, Py_ssize_t size, const unsigned char *unit, bytes topic,
    int32_t queue_id, int64_t queue_offset,
) noexcept:
    """Whether a record is plain, whole, and the one its queue entry speaks of."""
    cdef Record found
    return (
        read_record(at, size, <int64_t>roquet_get64(unit), True, &found)
        and found.size == <uint32_t>size
        and found.queue_id == queue_id
        and found.queue_offset == queue_offset
        and found.topic.size == PyBytes_GET_SIZE(topic)
        and memcmp(found.topic.at, PyBytes_AS_STRING(topic), found.topic.size) == 0
        and <int64_t><int32_t>java_hash(0, found.properties.tags.at, found.properties.tags.size)
        == <int64_t>roquet_get64(unit + 12)
    )
