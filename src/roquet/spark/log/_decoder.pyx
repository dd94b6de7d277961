"""Decodes records of the log to columns in one pass; compiled twin of ``row_decoder.py``.

A record is read once; only the requested columns are written, and rows outside the selection leave
no trace. Text that is not plain (not UTF-8, a property named twice, IPv6) goes to the functions of
the reference, so both always agree.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy

from roquet.format._layout cimport *
from roquet.format._record cimport (
    ENDED_, FAULT_, FULL_, GOOD_, Layout, fits_crc, is_numbered, lay_out,
)
from roquet.model._bytes cimport roquet_get32, roquet_get64
from roquet.model._constants cimport *
from roquet.model._text cimport Text, roquet_is_utf8
from roquet.spark.log._columns cimport *
from roquet.spark.log._conditions cimport PAIRS_MAX, Conditions, Pair, is_name, put_hex, split_pairs

from roquet.model.host import Host
from roquet.model.properties import decode_properties
from roquet.spark.log.row_decoder import is_good


cdef extern from "<string.h>":
    void *memmem(const void *where, size_t size, const void *what, size_t what_size) nogil


cdef enum:
    HOST_TEXT_MAX = 64


cdef struct HostText:
    unsigned char host[IPV6_HOST_BYTES]
    int host_bytes
    char text[HOST_TEXT_MAX]
    int size


cdef bint has_crc_property(const Text *properties) noexcept nogil:
    if properties.size < CRC_PROPERTY_BYTES:
        return False
    return memcmp(properties.at + properties.size - CRC_PROPERTY_BYTES, b"__CRC32#\x01", 9) == 0


def host_text(bytes packed):
    """Return an address formatted by the reference."""
    return str(Host.unpack(packed))


cdef class Decoder:
    """Turns records into blocks.

    Args:
        columns: Names of the columns to write.
        rows_max: The maximum number of rows in a block.
        bytes_max: A block ends with the record that reaches this many bytes.
        check_crc: Whether bodies are checked.
        selection: Which rows to decode.
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
    cdef Conditions _conditions
    cdef list _free
    cdef bint _wants_properties
    cdef HostText _born
    cdef HostText _store

    def __cinit__(
        self, columns, selection, *, bint check_crc, Py_ssize_t rows_max, Py_ssize_t bytes_max
    ):
        cdef Py_ssize_t i
        self._columns = frozenset(columns)
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._check_crc = check_crc
        self._takes_topic = selection.topic_test()
        self._topics = {}
        self._last_topic = b""
        queues = sorted(selection.queue_ids)
        self._queue_count = len(queues)
        self._queue_ids = <int32_t *>take(max(len(queues), 1) * 4)
        for i in range(self._queue_count):
            self._queue_ids[i] = queues[i]
        self._key_bytes = tuple(key.encode() for key in selection.keys)
        self._takes_keys = selection.takes_keys
        self._from_ms = selection.store_from_ms
        self._to_ms = selection.store_to_ms
        self._conditions = Conditions(selection) if selection.numbers or selection.texts else None
        self._free = []
        self._wants_properties = not self._columns.isdisjoint(("tags", "keys", "msgId", "properties"))
        self._born.host_bytes = self._store.host_bytes = 0

    def __dealloc__(self):
        free(self._queue_ids)

    def decode(
        self, data, Py_ssize_t position, int64_t stop, int64_t end, int64_t base
    ):
        """Like :meth:`roquet.spark.log.row_decoder.RowDecoder.decode`, into a block.

        Returns:
            The block, the position reached, and why it stopped there.
        """
        cdef Py_buffer view
        cdef Columns columns = self._columns_for_a_block()
        cdef Py_ssize_t reached
        cdef int why
        if position < 0:
            raise ValueError(f"position {position}")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            reached = position
            why = self._decode(<const unsigned char *>view.buf, view.len, &reached, stop, end, base, columns)
        finally:
            PyBuffer_Release(&view)
        return Block(columns, self._free), reached, why

    cdef Columns _columns_for_a_block(self):
        """Return free memory of an earlier block, or new memory."""
        cdef Columns columns
        if not self._free:
            return Columns(self._columns, self._rows_max)
        columns = self._free.pop()
        columns.clear()
        return columns

    cdef int _decode(
        self, const unsigned char *data, Py_ssize_t size, Py_ssize_t *position, int64_t stop,
        int64_t end, int64_t base, Columns columns,
    ) except -2:
        cdef Py_ssize_t at = position[0]
        cdef Py_ssize_t bytes_taken = 0
        cdef Layout record
        cdef int found
        while at < stop and at < end:
            if columns.rows == self._rows_max or bytes_taken >= self._bytes_max:
                position[0] = at
                return FULL_
            found = lay_out(data + at, size - at, end - at, &record)
            if found == GOOD_ and not self._is_sound(data + at, base + at if base >= 0 else -1, &record):
                found = FAULT_
            if found != GOOD_:
                position[0] = at
                return found
            if self._takes(data + at, &record):
                self._put(data + at, &record, columns)
                bytes_taken += record.size
            at += record.size
        position[0] = at
        return ENDED_

    cdef bint _is_sound(
        self, const unsigned char *at, int64_t physical_offset, const Layout *record
    ) except -1:
        """Do the checks of the reference other than those of lengths."""
        if not is_numbered(at, physical_offset):
            return False
        if record.topic.size == 0 or memchr(record.topic.at, 0, record.topic.size) != NULL:
            return False
        if not roquet_is_utf8(record.topic.at, record.topic.size):
            return False
        if not self._check_crc:
            return True
        if not fits_crc(at, &record.body):
            return False
        if has_crc_property(&record.properties):
            return is_good(
                PyBytes_FromStringAndSize(<const char *>at, record.size), physical_offset
            )
        return True

    cdef bint _takes(self, const unsigned char *at, const Layout *record) except -1:
        cdef Py_ssize_t i
        cdef int32_t queue_id
        if not self._from_ms <= record.store_ms < self._to_ms:
            return False
        if self._conditions is not None and not self._conditions.takes_numbers(at):
            return False
        if self._queue_count:
            queue_id = <int32_t>roquet_get32(at + RECORD_QUEUE_ID_AT)
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
            if not self._takes_keys(decode_properties(text)):
                return False
        return self._conditions is None or self._conditions.takes_texts(at, record)

    cdef bint _may_have_key(self, const Text *properties) except -1:
        """Whether a property string contains one of the words."""
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

    cdef int _put(self, const unsigned char *at, const Layout *record, Columns columns) except -1:
        cdef Fixed *fixed = columns.fixed
        cdef Varying *varying = columns.varying
        if fixed[F_QUEUE_ID].wanted:
            columns.put32(F_QUEUE_ID, <int32_t>roquet_get32(at + RECORD_QUEUE_ID_AT))
        if fixed[F_STORE_SIZE].wanted:
            columns.put32(F_STORE_SIZE, <int32_t>record.size)
        if fixed[F_SYS_FLAG].wanted:
            columns.put32(F_SYS_FLAG, <int32_t>record.sys_flag)
        if fixed[F_FLAG].wanted:
            columns.put32(F_FLAG, <int32_t>roquet_get32(at + RECORD_FLAG_AT))
        if fixed[F_BODY_CRC].wanted:
            columns.put32(F_BODY_CRC, <int32_t>roquet_get32(at + RECORD_BODY_CRC_AT))
        if fixed[F_QUEUE_OFFSET].wanted:
            columns.put64(F_QUEUE_OFFSET, <int64_t>roquet_get64(at + RECORD_QUEUE_OFFSET_AT))
        if fixed[F_PHYSICAL].wanted:
            columns.put64(F_PHYSICAL, <int64_t>roquet_get64(at + RECORD_PHYSICAL_OFFSET_AT))
        if fixed[F_RECONSUME].wanted:
            columns.put32(F_RECONSUME, <int32_t>roquet_get32(
                record.body.at - COUNTERS_BYTES
            ))
        if fixed[F_PREPARED].wanted:
            columns.put64(F_PREPARED, <int64_t>roquet_get64(
                record.body.at - (RECORD_BYTES - RECORD_PREPARED_TRANSACTION_OFFSET_AT)
            ))
        if fixed[F_BORN].wanted:
            columns.put_ms(F_BORN, <int64_t>roquet_get64(at + RECORD_BORN_TIMESTAMP_AT))
        if fixed[F_STORE].wanted:
            columns.put_ms(F_STORE, record.store_ms)
        if varying[V_TOPIC].wanted:
            columns.put_text(V_TOPIC, record.topic.at, record.topic.size)
        if varying[V_BODY].wanted:
            columns.put_text(V_BODY, record.body.at, record.body.size)
            if record.sys_flag & COMPRESSED:
                columns.compressed.append((columns.rows, <int32_t>record.sys_flag))
        if varying[V_OFFSET_ID].wanted:
            self._put_offset_id(V_OFFSET_ID, at, record, columns)
        if varying[V_BORN_HOST].wanted:
            self._put_host(V_BORN_HOST, record.born_host, record.born_host_bytes, &self._born, columns)
        if varying[V_STORE_HOST].wanted:
            self._put_host(
                V_STORE_HOST, record.store_host, record.store_host_bytes, &self._store, columns
            )
        if self._wants_properties:
            self._put_properties(at, record, columns)
        columns.rows += 1
        return 0

    cdef int _put_offset_id(
        self, int column, const unsigned char *at, const Layout *record, Columns columns
    ) except -1:
        cdef unsigned char text[56]
        cdef Py_ssize_t size = put_hex(record.store_host, record.store_host_bytes, text)
        size += put_hex(at + RECORD_PHYSICAL_OFFSET_AT, 8, text + size)
        return columns.put_text(column, text, size)

    cdef int _put_host(
        self, int column, const unsigned char *host, int host_bytes, HostText *last, Columns columns
    ) except -1:
        if last.host_bytes != host_bytes or memcmp(last.host, host, host_bytes) != 0:
            if host_bytes == IPV4_HOST_BYTES:
                last.size = snprintf(
                    last.text, HOST_TEXT_MAX, b"%d.%d.%d.%d:%d", <int>host[0], <int>host[1],
                    <int>host[2], <int>host[3], <int>(<int32_t>roquet_get32(host + 4)),
                )
            else:
                made = host_text(
                    PyBytes_FromStringAndSize(<const char *>host, host_bytes)
                ).encode("utf-8")
                last.size = len(made)
                assert last.size <= HOST_TEXT_MAX
                memcpy(last.text, <const char *>made, last.size)
            memcpy(last.host, host, host_bytes)
            last.host_bytes = host_bytes
        return columns.put_text(column, <unsigned char *>last.text, last.size)

    cdef int _put_properties(
        self, const unsigned char *at, const Layout *record, Columns columns
    ) except -1:
        cdef Pair pairs[PAIRS_MAX]
        cdef const Text *tags = NULL
        cdef const Text *keys = NULL
        cdef const Text *unique = NULL
        cdef int count = split_pairs(&record.properties, pairs)
        cdef int i
        if count < 0:
            return self._put_slowly(at, record, columns)
        for i in range(count):
            if is_name(&pairs[i].name, b"TAGS", 4):
                tags = &pairs[i].value
            elif is_name(&pairs[i].name, b"KEYS", 4):
                keys = &pairs[i].value
            elif is_name(&pairs[i].name, b"UNIQ_KEY", 8):
                unique = &pairs[i].value
        if columns.varying[V_TAGS].wanted:
            columns.put_found(V_TAGS, tags)
        if columns.varying[V_KEYS].wanted:
            columns.put_found(V_KEYS, keys)
        if columns.varying[V_MSG_ID].wanted:
            if unique == NULL:
                self._put_offset_id(V_MSG_ID, at, record, columns)
            else:
                columns.put_found(V_MSG_ID, unique)
        if columns.wants_map:
            for i in range(count):
                columns.put_text(V_NAMES, pairs[i].name.at, pairs[i].name.size)
                columns.put_text(V_VALUES, pairs[i].value.at, pairs[i].value.size)
            columns.map_offsets[columns.rows + 1] = <int32_t>columns.varying[V_NAMES].count
        return 0

    cdef int _put_slowly(
        self, const unsigned char *at, const Layout *record, Columns columns
    ) except -1:
        """Do the same with the functions of the reference."""
        cdef dict found = decode_properties(
            PyBytes_FromStringAndSize(<const char *>record.properties.at, record.properties.size)
        )
        if columns.varying[V_TAGS].wanted:
            columns.put_object(V_TAGS, found.get("TAGS"))
        if columns.varying[V_KEYS].wanted:
            columns.put_object(V_KEYS, found.get("KEYS"))
        if columns.varying[V_MSG_ID].wanted:
            if "UNIQ_KEY" in found:
                columns.put_object(V_MSG_ID, found["UNIQ_KEY"])
            else:
                self._put_offset_id(V_MSG_ID, at, record, columns)
        if columns.wants_map:
            for name, value in found.items():
                columns.put_object(V_NAMES, name)
                columns.put_object(V_VALUES, value)
            columns.map_offsets[columns.rows + 1] = <int32_t>columns.varying[V_NAMES].count
        return 0
