"""Records of the CommitLog: finding their parts, and reading and writing plain ones.

Only :func:`lay_out` finds the parts of a record, plain or not. A plain record is of version 1 and
not part of a transaction; its topic, TAGS, KEYS and UNIQ_KEY are ASCII, and it has no CRC
property. The reference, ``commit_log.py``, handles all others. The functions are inline, so that
each module that uses them compiles its own.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from roquet.format._crc32 cimport roquet_crc32
from roquet.format._layout cimport *
from roquet.model._bytes cimport roquet_get32, roquet_get64, roquet_put32, roquet_put64
from roquet.model._constants cimport *
from roquet.model._text cimport Text, has_byte, is_ascii, roquet_find, roquet_java_hash


cdef enum:  # why a reader of records stops, as in roquet.spark.log.row_decoder
    ENDED_ = 0
    FULL_ = 1
    BLANK_ = 2
    FAULT_ = 3
    MORE_ = 4
    GOOD_ = -1  # a record, so none of the reasons to stop


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


cdef struct Properties:
    Text tags
    Text keys
    Text unique
    Text delay
    bint is_plain


cdef struct Record:
    uint32_t size
    int32_t queue_id
    int64_t queue_offset
    uint32_t sys_flag
    int64_t store_timestamp_ms
    Text body
    Text topic
    Text raw_properties
    bint is_delayed
    Properties properties


cdef struct Host:
    unsigned char ip[4]
    int32_t port


cdef struct Message:
    # A plain message; the broker's own properties are written behind the producer's.
    Text topic
    int32_t queue_id
    int32_t flag
    uint32_t sys_flag
    int32_t reconsume_times
    int64_t born_ms
    int64_t prepared_offset
    Host born_host
    Host store_host
    Text body
    Text properties
    Text own_properties
    Properties found


cdef inline int64_t tags_hash(const Properties *found) noexcept nogil:
    return <int32_t>roquet_java_hash(0, found.tags.at, found.tags.size)


cdef inline void read_properties(const unsigned char *at, Py_ssize_t size, Properties *found) noexcept nogil:
    """Find the properties dispatch needs; the last of a name counts, empty ones do not."""
    cdef const unsigned char *end = at + size
    cdef const unsigned char *pair_end
    found.tags.at = found.keys.at = found.unique.at = found.delay.at = at
    found.tags.size = found.keys.size = found.unique.size = found.delay.size = 0
    found.is_plain = True
    while at < end:
        pair_end = roquet_find(at, end, 2)
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
        is_ascii(&found.tags)
        and is_ascii(&found.keys)
        and is_ascii(&found.unique)
    ):
        found.is_plain = False


cdef inline bint is_schedule_topic(const void *at, Py_ssize_t size) noexcept nogil:
    return size == 19 and memcmp(at, b"SCHEDULE_TOPIC_XXXX", 19) == 0


cdef inline uint32_t get16(const unsigned char *at) noexcept nogil:
    return (<uint32_t>at[0] << 8) | at[1]


cdef inline int lay_out(
    const unsigned char *at, int64_t room, int64_t rest, Layout *out
) noexcept nogil:
    """Find the parts of the record at ``at``; ``room`` bytes are in memory, ``rest`` in the file."""
    cdef uint32_t magic
    cdef int64_t size, body_at, body_bytes, topic_at, properties_at
    cdef int length_bytes, born_extra, store_extra
    if rest < END_OF_SEGMENT_BYTES:
        return FAULT_
    if room < END_OF_SEGMENT_BYTES:
        return MORE_
    size = <int32_t>roquet_get32(at + RECORD_TOTAL_SIZE_AT)
    magic = roquet_get32(at + RECORD_MAGIC_AT)
    if magic == MAGIC_BLANK:
        return BLANK_
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return FAULT_
    if size < RECORD_BYTES_MIN or size > rest:
        return FAULT_
    if room < RECORD_BYTES_MIN:
        return MORE_
    out.size = <uint32_t>size
    out.sys_flag = roquet_get32(at + RECORD_SYS_FLAG_AT)
    born_extra = IPV6_EXTRA_BYTES if out.sys_flag & BORN_HOST_V6 else 0
    store_extra = IPV6_EXTRA_BYTES if out.sys_flag & STORE_HOST_V6 else 0
    out.born_host_bytes = IPV4_HOST_BYTES + born_extra
    out.store_host_bytes = IPV4_HOST_BYTES + store_extra
    body_at = RECORD_BYTES + born_extra + store_extra
    if body_at > size:
        return FAULT_
    if room < body_at:
        return MORE_
    out.born_host = at + RECORD_BORN_HOST_AT
    out.store_ms = <int64_t>roquet_get64(at + RECORD_STORE_TIMESTAMP_AT + born_extra)
    out.store_host = at + RECORD_STORE_HOST_AT + born_extra
    body_bytes = <int32_t>roquet_get32(at + RECORD_BODY_LENGTH_AT + born_extra + store_extra)
    length_bytes = TOPIC_LENGTH_BYTES_V2 if magic == MAGIC_V2 else TOPIC_LENGTH_BYTES_V1
    topic_at = body_at + body_bytes + length_bytes
    if body_bytes < 0 or topic_at + PROPERTIES_LENGTH_BYTES > size:
        return FAULT_
    if size - body_at - body_bytes > BEHIND_BODY_BYTES_MAX:
        return FAULT_
    if room < size:
        return MORE_
    out.body.at = at + body_at
    out.body.size = body_bytes
    out.topic.at = at + topic_at
    out.topic.size = get16(at + topic_at - 2) if length_bytes == 2 else at[topic_at - 1]
    properties_at = topic_at + out.topic.size + PROPERTIES_LENGTH_BYTES
    if properties_at > size:
        return FAULT_
    out.properties.at = at + properties_at
    out.properties.size = get16(at + properties_at - 2)
    if out.properties.size > PROPERTIES_BYTES_MAX or properties_at + out.properties.size != size:
        return FAULT_
    return GOOD_


cdef inline bint is_numbered(const unsigned char *at, int64_t physical_offset) noexcept nogil:
    """Whether a record states its offset, if that is known, and a possible queue id and offset."""
    return (
        (physical_offset < 0 or <int64_t>roquet_get64(at + RECORD_PHYSICAL_OFFSET_AT) == physical_offset)
        and <int32_t>roquet_get32(at + RECORD_QUEUE_ID_AT) >= 0
        and <int64_t>roquet_get64(at + RECORD_QUEUE_OFFSET_AT) >= 0
    )


cdef inline bint read_record(
    const unsigned char *at, Py_ssize_t room, int64_t physical_offset, bint check_crc, Record *out
) noexcept nogil:
    """Whether a plain, whole record starts here; if not, the reference decides."""
    cdef Layout parts
    if room < RECORD_BYTES_MIN or roquet_get32(at + RECORD_MAGIC_AT) != MAGIC_V1:
        return False
    if physical_offset < 0 or not is_numbered(at, physical_offset):
        return False
    if lay_out(at, room, room, &parts) != GOOD_ or parts.sys_flag & TRANSACTION_MASK:
        return False
    if not is_plain_topic(&parts.topic):
        return False
    if has_byte(&parts.properties, 0):
        return False
    if check_crc and not fits_crc(at, &parts.body):
        return False
    read_properties(parts.properties.at, parts.properties.size, &out.properties)
    if not out.properties.is_plain:
        return False
    out.body = parts.body
    out.topic = parts.topic
    out.raw_properties = parts.properties
    out.is_delayed = is_schedule_topic(parts.topic.at, parts.topic.size)
    out.size = parts.size
    out.queue_id = <int32_t>roquet_get32(at + RECORD_QUEUE_ID_AT)
    out.queue_offset = <int64_t>roquet_get64(at + RECORD_QUEUE_OFFSET_AT)
    out.sys_flag = parts.sys_flag
    out.store_timestamp_ms = parts.store_ms
    return True


cdef inline bint is_plain_topic(const Text *topic) noexcept nogil:
    return topic.size > 0 and not has_byte(topic, 0) and is_ascii(topic)


cdef inline bint fits_crc(const unsigned char *at, const Text *body) noexcept nogil:
    return roquet_crc32(body.at, body.size) & CRC_MASK == roquet_get32(at + RECORD_BODY_CRC_AT)


cdef inline bint fits_place(
    const unsigned char *at, Py_ssize_t size, int64_t physical_offset, const Text *topic,
    int32_t queue_id, int64_t queue_offset, Record *out,
) noexcept nogil:
    """Whether a plain, whole record belongs to a queue at an offset."""
    return (
        read_record(at, size, physical_offset, True, out)
        and out.size == <uint32_t>size
        and out.queue_id == queue_id
        and out.queue_offset == queue_offset
        and out.topic.size == topic.size
        and memcmp(out.topic.at, topic.at, topic.size) == 0
    )


cdef inline Py_ssize_t record_size(const Message *message) noexcept nogil:
    return (
        RECORD_BYTES_MIN + message.body.size + message.topic.size
        + message.properties.size + message.own_properties.size
    )


cdef inline void write_host(unsigned char *at, const Host *host) noexcept nogil:
    memcpy(at, host.ip, 4)
    roquet_put32(at + 4, <uint32_t>host.port)


cdef inline void write_record(
    unsigned char *record, const Message *message, int64_t queue_offset,
    int64_t physical_offset, int64_t now_ms,
) noexcept nogil:
    """Write a record except for its first eight bytes, which make it visible."""
    cdef Py_ssize_t size = message.topic.size
    cdef unsigned char *at = record + RECORD_BYTES + message.body.size
    roquet_put32(record + RECORD_BODY_CRC_AT, roquet_crc32(message.body.at, message.body.size) & CRC_MASK)
    roquet_put32(record + RECORD_QUEUE_ID_AT, <uint32_t>message.queue_id)
    roquet_put32(record + RECORD_FLAG_AT, <uint32_t>message.flag)
    roquet_put64(record + RECORD_QUEUE_OFFSET_AT, <uint64_t>queue_offset)
    roquet_put64(record + RECORD_PHYSICAL_OFFSET_AT, <uint64_t>physical_offset)
    roquet_put32(record + RECORD_SYS_FLAG_AT, message.sys_flag)
    roquet_put64(record + RECORD_BORN_TIMESTAMP_AT, <uint64_t>message.born_ms)
    write_host(record + RECORD_BORN_HOST_AT, &message.born_host)
    roquet_put64(record + RECORD_STORE_TIMESTAMP_AT, <uint64_t>now_ms)
    write_host(record + RECORD_STORE_HOST_AT, &message.store_host)
    roquet_put32(record + RECORD_RECONSUME_TIMES_AT, <uint32_t>message.reconsume_times)
    roquet_put64(record + RECORD_PREPARED_TRANSACTION_OFFSET_AT, <uint64_t>message.prepared_offset)
    roquet_put32(record + RECORD_BODY_LENGTH_AT, <uint32_t>message.body.size)
    memcpy(record + RECORD_BYTES, message.body.at, message.body.size)
    at[0] = <unsigned char>size
    memcpy(at + 1, message.topic.at, size)
    at += 1 + size
    size = message.properties.size + message.own_properties.size
    at[0] = <unsigned char>(size >> 8)
    at[1] = <unsigned char>size
    memcpy(at + 2, message.properties.at, message.properties.size)
    if message.own_properties.size:
        memcpy(at + 2 + message.properties.size, message.own_properties.at,
               message.own_properties.size)
