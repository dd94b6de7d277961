"""Plain requests, compiled: from the bytes of a burst to the bytes of the responses.

Takes frames from the front of a burst and stops at the first that is not plain, which the reference
path then handles as if this code had never seen it. Responses and files are byte for byte what the
reference path would have written. Plain sends are in ``_send.pyx``, plain pulls in ``_pull.pyx``;
a commit of an offset is plain too.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

from roquet.broker.hot._pull cimport Plan, Pulls
from roquet.broker.hot._send cimport Peer, Sends
from roquet.model._bytes cimport roquet_get32
from roquet.model._text cimport Text
from roquet.remoting._codes cimport (
    LITE_PULL_MESSAGE, ONEWAY_FLAG, PULL_MESSAGE, SEND_BATCH_MESSAGE, SEND_MESSAGE,
    SEND_MESSAGE_V2, UPDATE_CONSUMER_OFFSET,
)
from roquet.remoting._frame cimport (
    DIGITS_MAX, FRAME_HEAD, SLOT_OPAQUE, SLOTS, Output, Template, set_number,
)
from roquet.remoting._header cimport (
    F_COMMITTED, F_GROUP, F_QUEUE_ID, F_TOPIC, HEADER_MAX, Fields, Request, bind_commit,
    bind_letters, bind_pull, bind_send, is_simple, read_header, read_int, read_long,
)
from roquet.store._append cimport PlainAppender


cdef enum:
    FRAME_MAX = 1 << 24
    # How much work beside the copying of records the pulls of a burst may ask for, in calls of a
    # filter. Their responses may be short, so that no limit on output stops them.
    EFFORT_MAX = 2048


cdef class PlainRequests:
    """Sends, pulls and commits of all connections of one broker.

    Args:
        appender: The compiled append of the store.
        store: The store.
        rules: What the reference path allows; see :class:`roquet.broker.hot.rules.HotRules`.
        store_host: Address bytes and port that records and message ids name.
        own_properties: The properties that the broker adds to a message.
        answers: Templates by the names ``sent``, ``batch`` (no unique key) and ``committed``, for
            JSON and binary headers.
        memory_bytes: How far behind the end of the log messages count as near.
        pull_max: The most messages in a response.
    """

    def __cinit__(self):
        self._scratch = <unsigned char *>malloc(HEADER_MAX)
        if self._scratch == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._scratch)

    def __init__(self, PlainAppender appender not None, store, rules, store_host,
                 bytes own_properties not None, dict answers not None, *,
                 Py_ssize_t memory_bytes, Py_ssize_t pull_max):
        self._rules = rules
        self._out = Output()
        self.sends = Sends(appender, rules, store_host, own_properties, answers, self._out)
        self.pulls = Pulls(
            store, rules, self._out, memory_bytes=memory_bytes, pull_max=pull_max
        )
        self._committed_json, self._committed_binary = answers["committed"]

    @property
    def messages(self):
        """Messages that the last burst appended."""
        return self.sends.messages

    @property
    def waiting_answers(self):
        """Responses of the last burst that have to wait."""
        return self.sends.waiting_answers

    @property
    def gets(self):
        """Pulls that the last burst served."""
        return self.pulls.gets

    @property
    def got_messages(self):
        """Messages that those returned."""
        return self.pulls.got_messages

    cpdef tuple take(
        self, const unsigned char[::1] data, Py_ssize_t position, Peer peer,
        int64_t now_ms, bint appends, bint dispatch, bint waits, bint pulls,
        Py_ssize_t max_output,
    ):
        """Handle plain frames from ``position`` on.

        Args:
            data: The bytes that were read.
            position: Where the first frame starts.
            peer: The sender.
            now_ms: The store timestamp, or -1.
            appends: Whether anything may be appended.
            dispatch: Whether appended records are dispatched at once.
            waits: Whether the responses to sends are held back.
            pulls: Whether pulls are served on this port.
            max_output: No further frame is taken once the responses reach this length, or once
                pulls have made many plans or checked many entries: the reference path, whose turns
                have a limit in time, handles the next one.

        Returns:
            The position of the first frame that was left, how many frames were taken, the
            responses, and those that have to wait. ``messages``, ``gets`` and ``got_messages`` tell
            more.
        """
        cdef Py_ssize_t size = data.shape[0]
        cdef Py_ssize_t length, header_bytes, count = 0
        cdef const unsigned char *frame
        cdef Request request
        self._out.used = self.sends.held.used = 0  # in case an earlier burst failed
        self.sends.begin(now_ms, appends, dispatch, waits)
        self.pulls.begin(now_ms)
        try:
            while (
                0 <= position <= size - FRAME_HEAD
                and self._out.used < max_output
                and self.pulls.effort < EFFORT_MAX
            ):
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
            self.sends.end()
        return position, count, self._out.take(), self.sends.held.take()

    cdef bint _guarded(
        self, const Request *request, const unsigned char *frame, Py_ssize_t size,
        Py_ssize_t header_bytes, Peer peer, bint pulls,
    ) except -1:
        """As :meth:`_handle`; an error is reported, and leaves the frame to the reference path."""
        cdef Py_ssize_t out_used = self._out.used, held_used = self.sends.held.used
        try:
            return self._handle(request, frame, size, header_bytes, peer, pulls)
        except Exception as error:
            self._out.used = out_used
            self.sends.held.used = held_used
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
        if request.code == SEND_MESSAGE_V2 or request.code == SEND_BATCH_MESSAGE:
            return bind_letters(request, &fields) and self.sends.take(
                request, &fields, body, body_bytes, peer
            )
        if request.code == SEND_MESSAGE:
            return bind_send(request, &fields) and self.sends.take(
                request, &fields, body, body_bytes, peer
            )
        if request.code == PULL_MESSAGE or request.code == LITE_PULL_MESSAGE:
            return pulls and request.flag == 0 and bind_pull(request, &fields) and self.pulls.take(
                request, &fields, frame, size, peer.connection
            )
        if request.code == UPDATE_CONSUMER_OFFSET:
            return bind_commit(request, &fields) and self._commit(request, &fields)
        return False

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
