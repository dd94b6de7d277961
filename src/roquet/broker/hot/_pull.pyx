"""Plain pulls, compiled: from the fields of a request to a response with records of the log.

A pull is plain if the reference path (``processor/pull_message.py``) made a plan for its kind, and
the requested messages exist, are in memory and undamaged, however far from the end of the log.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from roquet.format._layout cimport (
    FILLER_SIZE, IPV6_EXTRA_BYTES, RECORD_STORE_TIMESTAMP_AT, RECORD_SYS_FLAG_AT, UNIT_BYTES,
    UNIT_PHYSICAL_OFFSET_AT, UNIT_SIZE_AT, UNIT_TAGS_CODE_AT,
)
from roquet.format._record cimport Record, fits_place, tags_hash
from roquet.filter.tags import TagFilter
from roquet.model._bytes cimport roquet_get32, roquet_get64, roquet_prefetch_read, roquet_put32
from roquet.model._constants cimport BORN_HOST_V6
from roquet.model._text cimport Text
from roquet.remoting._codes cimport COMMIT_OFFSET_FLAG
from roquet.remoting._frame cimport (
    DIGITS_MAX, SLOT_MAX_OFFSET, SLOT_MIN_OFFSET, SLOT_OFFSET, SLOT_OPAQUE, SLOTS, set_number,
)
from roquet.remoting._header cimport (
    F_COMMIT_OFFSET, F_EXPRESSION_TYPE, F_GROUP, F_MAX_BYTES, F_MAX_MESSAGES, F_OFFSET, F_QUEUE_ID,
    F_SUBSCRIPTION, F_SUSPEND, F_SYS_FLAG, F_TOPIC, F_VERSION, HEADER_MAX, has, read_int, read_long,
)
from roquet.store.read_ahead import RECENT_BYTES


cdef extern from "<sys/uio.h>":
    cdef struct iovec:
        void *iov_base
        size_t iov_len
    int RWF_NOWAIT
    Py_ssize_t preadv2(int fd, const iovec *parts, int count, int64_t position, int flags) nogil


cdef extern from "<unistd.h>":
    int getpagesize() nogil


cdef extern from "<sys/mman.h>":
    int mincore(void *at, size_t size, unsigned char *pages) nogil


cdef enum:
    RESPONSE_BYTES_MAX = 1 << 23
    PAGES_A_LOOK = 64
    PLANS_MAX = 4096
    PLAN_TEXT_MAX = 1024
    PLAN_EFFORT = 1024  # a plan takes as long as this many calls of a filter
    CODES_A_CALL = 16  # as many tags codes are compared while a filter is called
    FETCHED_BYTES_MAX = 2048  # the CPU itself fetches the rest of a long record in time


cdef enum:
    # Where a record is.
    MISSING
    ON_DISK
    IN_MEMORY


cdef class Plan(Counted):
    """How to serve pulls that differ only in their offsets.

    Args:
        group: The group.
        topic: The topic.
        key: The key of the group's offsets for the topic.
        queues: How many queues may be read.
        is_wanted: Whether a message matches, by its tags code; ``None`` for all.
        near: The response with a JSON and with a binary header.
        far: The same for messages far from the end of the log, which a slave should serve.
    """

    def __init__(self, str group not None, str topic not None, str key not None, int32_t queues,
                 is_wanted, tuple near not None, tuple far not None):
        self.group = group
        self.topic = topic
        self.key = key
        self._topic = topic.encode()
        self._queues = queues
        self._is_wanted = is_wanted
        self._code_count = 0
        self._near = near
        self._far = far
        if isinstance(is_wanted, TagFilter) and len(is_wanted.codes) <= CODES_MAX:
            # The low 32 bits of an entry's code are compared, so that a longer code never matches.
            for code in is_wanted.codes:
                if -1 << 31 <= code < 1 << 31:
                    self._codes[self._code_count] = code
                    self._code_count += 1
            self._is_wanted = None
            self._has_codes = True

    cdef bint _has_code(self, int64_t tags_code) noexcept:
        """Whether a message matches by one of the tags codes."""
        cdef Py_ssize_t number
        for number in range(self._code_count):
            if self._codes[number] == <int32_t>tags_code:
                return True
        return False


cdef class Pulls:
    """Plain pulls of all connections of one broker.

    Args:
        store: The store.
        rules: What the reference path allows; see :class:`roquet.broker.hot.rules.HotRules`.
        out: Where the responses go.
        memory_bytes: How far behind the end of the log messages count as near.
        pull_max: The most messages in a response.
    """

    def __cinit__(self):
        self._key = <unsigned char *>malloc(HEADER_MAX + 64)
        self._units = <unsigned char *>malloc(UNITS_MAX * UNIT_BYTES)
        if not (self._key and self._units):
            raise MemoryError

    def __dealloc__(self):
        free(self._key)
        free(self._units)

    def __init__(self, store, rules, Output out not None, *, int64_t memory_bytes,
                 Py_ssize_t pull_max):
        config = store.config
        self._read_ahead = store.reader.read_ahead
        self._log = store.commit_log
        self._rules = rules
        self._table = store.queues.table
        self._plans = {}
        self._resets = rules.resets
        self._pulled_offsets = rules.pulled_offsets
        self._pulled_by = []
        self._out = out
        self._memory_bytes = memory_bytes
        self._recent_bytes = RECENT_BYTES
        self._by_distance = config.message_in_disk_by_distance
        self._pull_max = pull_max
        self._scanned_bytes = config.filter_message_bytes_max
        self._transfer_bytes[0] = config.transfer_bytes_in_disk_max
        self._transfer_bytes[1] = config.transfer_bytes_in_memory_max
        self._transfer_count[0] = config.transfer_count_in_disk_max
        self._transfer_count[1] = config.transfer_count_in_memory_max
        self._asks_kernel = store.queues.uses_plain_files
        self._before_read = store.queues.read_hook
        self._reads_files = self._asks_kernel or self._before_read is not None

    def forget_plans(self):
        """Discard all plans, so that the rules are consulted again."""
        self._plans.clear()
        self._last_key = self._last_plan = None

    def drain(self):
        """Return what was pulled since the last call, by plan: messages, bytes, counts by queue.

        The counts of a queue: how many pulls, and how far the last of them was behind the end of
        the log, in bytes and in time.
        """
        cdef Plan each
        cdef list drained = []
        moved, self._pulled_by = self._pulled_by, []
        for each in moved:
            drained.append((each, *each.take()))
        return drained

    cdef void begin(self, int64_t now_ms) noexcept:
        """Start a burst."""
        self.gets = self.got_messages = self.effort = 0
        self._now_ms = now_ms

    cdef Plan _plan(self, const Request *request, Fields *fields, int32_t sys_flag,
                    const unsigned char *frame, Py_ssize_t size, object connection):
        """Return the plan of pulls with these names and flags, or ``None``."""
        cdef unsigned char *at = self._key
        cdef const Text *text
        cdef bytes key
        cdef Py_ssize_t size_bytes
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
        size_bytes = at - self._key
        key = self._last_key
        if key is not None and PyBytes_GET_SIZE(key) == size_bytes and (
            memcmp(PyBytes_AS_STRING(key), self._key, size_bytes) == 0
        ):
            return self._last_plan
        key = (<const char *>self._key)[:size_bytes]
        if key not in self._plans:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            self.effort += PLAN_EFFORT
            self._plans[key] = self._rules.plan((<const char *>frame)[:size], connection)
        self._last_key, self._last_plan = key, self._plans.get(key)
        return self._last_plan

    cdef bint take(
        self, const Request *request, Fields *fields, const unsigned char *frame,
        Py_ssize_t size, object connection,
    ) except -1:
        cdef const Text *values = fields.values
        cdef int32_t queue_id, sys_flag, max_messages, number
        cdef int64_t offset, commit_offset, ignored
        cdef Pulled pulled
        cdef Plan plan
        cdef dict queues, offsets
        cdef ConsumeQueue queue
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
        plan = self._plan(request, fields, sys_flag & ~COMMIT_OFFSET_FLAG, frame, size, connection)
        if plan is None or not 0 <= queue_id < plan._queues:
            return False
        queues = self._table.get(plan.topic)
        queue = None if queues is None else queues.get(queue_id)
        if queue is None or (self._resets and not self._rules.may_pull(plan, queue_id)):
            return False
        pulled.min_offset = queue.min_queue_offset
        pulled.max_offset = queue.max_queue_offset
        pulled.next_offset = offset
        if not pulled.min_offset <= offset < pulled.max_offset:
            return False
        try:
            if not self._choose(plan, queue, min(max_messages, self._pull_max), &pulled):
                return False
        finally:
            self._segment = None
        plan.reserve(self._pulled_by, queue_id)
        if not self._gather(request, plan, queue_id, &pulled):
            return False
        offsets = self._pulled_offsets.get(plan.key)
        if sys_flag & COMMIT_OFFSET_FLAG or offsets is None or queue_id not in offsets:
            self._rules.pulled(
                plan, queue_id, pulled.next_offset,
                commit_offset if sys_flag & COMMIT_OFFSET_FLAG else None,
            )
        else:
            offsets[queue_id] = pulled.next_offset
        self.gets += 1
        self.got_messages += pulled.count
        plan.count(queue_id, pulled.count, pulled.total_bytes)
        if pulled.fall_bytes > self._recent_bytes:
            self._read_on(queue, &plan.by_queue[queue_id], &pulled)
        return True

    cdef bint _choose(self, Plan plan, ConsumeQueue queue, Py_ssize_t max_messages,
                      Pulled *pulled) except -1:
        """Choose the entries for a response, by the limits of MessageReader."""
        cdef int64_t offset = pulled.next_offset
        cdef int64_t log_end = self._log.max_offset
        cdef Py_ssize_t scanned = max(self._scanned_bytes // UNIT_BYTES, max_messages)
        cdef Py_ssize_t units, number
        cdef int64_t size, physical, code
        cdef int found
        cdef bint is_wanted, in_memory
        cdef const unsigned char *unit
        cdef const unsigned char *record = NULL
        if plan._is_wanted is None and not plan._has_codes:
            scanned = min(max_messages, max(self._transfer_count[0], self._transfer_count[1]))
        if scanned > UNITS_MAX:
            return False
        scanned = min(scanned, pulled.max_offset - offset)
        units = self._read_units(queue, offset, scanned)
        self.effort += units * (1 + plan._code_count) // CODES_A_CALL
        pulled.first_offset = offset
        pulled.count = pulled.total_bytes = pulled.fall_bytes = 0
        self._segment = None
        for number in range(units):
            unit = self._units + number * UNIT_BYTES
            size = <int32_t>roquet_get32(unit + UNIT_SIZE_AT)
            if size <= 0 or size == FILLER_SIZE:
                return False
            if pulled.count and pulled.count == max_messages:
                break
            physical = <int64_t>roquet_get64(unit + UNIT_PHYSICAL_OFFSET_AT)
            code = <int64_t>roquet_get64(unit + UNIT_TAGS_CODE_AT)
            is_wanted = True
            if plan._has_codes:
                is_wanted = plan._has_code(code)
            elif plan._is_wanted is not None:
                self.effort += 1
                is_wanted = plan._is_wanted(code, None)
            found = self._find(physical, size, &record) if is_wanted else IN_MEMORY
            if found == MISSING:
                return False
            in_memory = log_end - physical <= self._memory_bytes if self._by_distance else (
                found == IN_MEMORY
            )
            if pulled.count and (
                pulled.count >= self._transfer_count[in_memory]
                or pulled.total_bytes + size > self._transfer_bytes[in_memory]
            ):
                break
            pulled.next_offset = offset + number + 1
            pulled.fall_bytes = log_end - physical
            if not is_wanted:
                continue
            if found != IN_MEMORY:
                return False
            pulled.records[pulled.count] = record
            pulled.chosen[pulled.count] = number
            pulled.count += 1
            pulled.total_bytes += size
        return pulled.count > 0 and pulled.total_bytes < RESPONSE_BYTES_MAX

    cdef int _find(
        self, int64_t physical, Py_ssize_t size, const unsigned char **record
    ) except -1:
        """Find a record of the log, and whether it is in memory; records must ascend."""
        cdef Part *part = &self._part
        cdef const unsigned char *at
        if self._segment is None or not part.start <= physical < part.limit:
            self._segment = self._log.queue.find(physical)
            if self._segment is None:
                return MISSING
            part.start = self._segment.start_offset
            part.limit = part.start + <int64_t>self._segment.read_limit
            part.base = <const unsigned char *><size_t>self._segment.address
            part.resident = part.base
            record[0] = part.base
        if physical < part.start or physical + size > part.limit:
            return MISSING
        at = part.base + (physical - part.start)
        if at < record[0]:
            return MISSING
        record[0] = at
        return IN_MEMORY if self._is_resident(at, size) else ON_DISK

    cdef bint _is_resident(self, const unsigned char *record, Py_ssize_t size) except -1:
        """Whether a record is in memory; one check covers those that follow it closely, too."""
        cdef Part *part = &self._part
        cdef const unsigned char *looked
        if not self._asks_kernel:
            return self._segment.is_resident(record - part.base, size)
        while part.resident < record + size:
            looked = record if part.resident < record else part.resident
            part.resident = resident_until(looked, part.base + (part.limit - part.start))
            if part.resident <= looked:
                return False
        return True

    cdef Py_ssize_t _read_units(self, ConsumeQueue queue, int64_t offset, Py_ssize_t count) except -1:
        """Read entries of one file of a queue that are in memory; return how many."""
        cdef EntryFiles entries = queue.entries
        cdef int64_t position = offset * UNIT_BYTES
        cdef int64_t file_bytes = entries.file_bytes
        cdef int64_t start = position - position % file_bytes
        cdef iovec part
        cdef bytes data
        cdef int fd = self._descriptor(entries, start) if self._reads_files else -1
        if fd >= 0:
            position -= start
            part.iov_base = self._units
            part.iov_len = min(count * UNIT_BYTES, file_bytes - position)
            if not (
                self._before_read is not None
                and is_refused(self._before_read, fd, part.iov_len, position)
            ) and preadv2(fd, &part, 1, position, RWF_NOWAIT) == <Py_ssize_t>part.iov_len:
                return part.iov_len // UNIT_BYTES
        data = queue.read_cached_units(offset, count)
        if data is None:
            return 0
        count = min(PyBytes_GET_SIZE(data) // UNIT_BYTES, count)
        memcpy(self._units, PyBytes_AS_STRING(data), count * UNIT_BYTES)
        return count

    cdef int _descriptor(self, EntryFiles entries, int64_t start) except -2:
        """Return a descriptor of the file of a queue that begins at a byte, -1 if there is none."""
        cdef object file = entries.tail
        if file is None or <int64_t>entries.tail_start != start or <int>file.fd < 0:
            file = entries.reading
            if file is None or <int64_t>entries.reading_start != start or <int>file.fd < 0:
                file = entries.open_reading(start)
                if file is None:
                    return -1
            file.is_used = True
        return file.fd

    cdef bint _gather(
        self, const Request *request, Plan plan, int32_t queue_id, const Pulled *pulled
    ) except -1:
        """Write the response; false, and nothing written, if a record is damaged."""
        cdef Py_ssize_t before = self._out.used
        cdef Text values[SLOTS]
        cdef unsigned char numbers[4][DIGITS_MAX]
        cdef const unsigned char *unit
        cdef unsigned char *into
        cdef Py_ssize_t number, size
        cdef tuple templates = plan._far if pulled.fall_bytes > self._memory_bytes else plan._near
        for number in range(SLOTS):
            values[number].size = 0
        set_number(&values[SLOT_OPAQUE], numbers[0], request.opaque)
        set_number(&values[SLOT_OFFSET], numbers[1], pulled.next_offset)
        set_number(&values[SLOT_MIN_OFFSET], numbers[2], pulled.min_offset)
        set_number(&values[SLOT_MAX_OFFSET], numbers[3], pulled.max_offset)
        self._out.add(<Template?>templates[request.is_binary], values, request.opaque,
                      pulled.total_bytes)
        into = self._out.need(pulled.total_bytes)
        for number in range(pulled.count):
            unit = self._units + pulled.chosen[number] * UNIT_BYTES
            size = <int32_t>roquet_get32(unit + UNIT_SIZE_AT)
            if number + 1 < pulled.count:
                # The next record is likely as long as this one.
                roquet_prefetch_read(pulled.records[number + 1], min(size, FETCHED_BYTES_MAX))
            if not fits_entry(
                pulled.records[number], size, unit, plan._topic, queue_id,
                pulled.first_offset + pulled.chosen[number],
            ):
                self._out.used = before
                return False
            memcpy(into, pulled.records[number], size)
            into += size
        self._out.used += pulled.total_bytes
        self._note_fall(&plan.by_queue[queue_id], pulled)
        return True

    cdef void _note_fall(self, QueueCounts *queue, const Pulled *pulled) noexcept:
        """Record how far the last entry, and the last record, are behind the log's end."""
        cdef const unsigned char *record = pulled.records[pulled.count - 1]
        cdef bint is_v6 = roquet_get32(record + RECORD_SYS_FLAG_AT) & BORN_HOST_V6 != 0
        queue.fall_bytes = pulled.fall_bytes
        if self._now_ms >= 0:
            queue.fall_ms = self._now_ms - <int64_t>roquet_get64(
                record + RECORD_STORE_TIMESTAMP_AT + (IPV6_EXTRA_BYTES if is_v6 else 0)
            )

    cdef int _read_on(self, ConsumeQueue queue, QueueCounts *counts, const Pulled *pulled) except -1:
        """Let what follows be read ahead, if the group has got that far."""
        if pulled.first_offset < counts.ahead_start or pulled.next_offset > counts.ahead_due:
            counts.ahead_start, counts.ahead_due = self._read_ahead.advance(
                queue, pulled.first_offset, pulled.next_offset
            )
        return 0


cdef bint is_refused(object before, int fd, size_t size, int64_t position) except -1:
    """Call the hook before a read; return whether it raised, which counts as a failed read."""
    try:
        before(fd, size, position)
    except OSError:
        return True
    return False


cdef const unsigned char *resident_until(
    const unsigned char *at, const unsigned char *end
) noexcept nogil:
    """Return how far the pages of a mapped range are in memory, for a limited number of pages."""
    cdef unsigned char pages[PAGES_A_LOOK]
    cdef size_t page_bytes = <size_t>getpagesize()
    cdef size_t start = <size_t>at - <size_t>at % page_bytes
    cdef size_t count = min((<size_t>end - start + page_bytes - 1) // page_bytes, <size_t>PAGES_A_LOOK)
    cdef size_t page = 0
    if mincore(<void *>start, count * page_bytes, pages) != 0:
        return at
    while page < count and pages[page] & 1:
        page += 1
    return <const unsigned char *>(start + page * page_bytes)


cdef bint fits_entry(
    const unsigned char *at, Py_ssize_t size, const unsigned char *unit, bytes topic,
    int32_t queue_id, int64_t queue_offset,
) noexcept:
    """Whether a record is plain, complete, and the one that its queue entry refers to."""
    cdef int64_t physical = <int64_t>roquet_get64(unit + UNIT_PHYSICAL_OFFSET_AT)
    cdef Record found
    cdef Text name
    name.at = <const unsigned char *>PyBytes_AS_STRING(topic)
    name.size = PyBytes_GET_SIZE(topic)
    return fits_place(at, size, physical, &name, queue_id, queue_offset, &found) and (
        tags_hash(&found.properties) == <int64_t>roquet_get64(unit + UNIT_TAGS_CODE_AT)
    )
