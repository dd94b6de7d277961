"""The buffers of Arrow columns.

Does not use Arrow itself: a :class:`Block` has addresses, from which ``decoder.py`` makes arrays.
Memory is reused once nothing refers to its block any more, because fresh memory costs more than
everything else.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

# The years 1 to 9999, the range of Spark's timestamps.
cdef int64_t TIMESTAMP_MIN_MS = -62135596800000
cdef int64_t TIMESTAMP_MAX_MS = 253402300799999

FIXED_NAMES = (
    "queueId", "storeSize", "reconsumeTimes", "sysFlag", "flag", "bodyCrc",
    "queueOffset", "physicalOffset", "preparedTransactionOffset",
    "bornTimestamp", "storeTimestamp",
)
VARYING_NAMES = (
    "topic", "body", "tags", "keys", "msgId", "offsetMsgId", "bornHost", "storeHost",
)
MAP_NAME = "properties"


cdef class Columns:
    """Memory for the columns of one batch.

    Args:
        names: The columns.
        rows_room: The maximum number of rows.
    """

    def __cinit__(self, names, Py_ssize_t rows_room):
        cdef int i
        memset(self.fixed, 0, sizeof(self.fixed))
        memset(self.varying, 0, sizeof(self.varying))
        self.rows_room = rows_room
        for i in range(FIXED):
            if FIXED_NAMES[i] in names:
                self.fixed[i].wanted = True
                self.fixed[i].at = <unsigned char *>take(rows_room * (4 if i <= F_BODY_CRC else 8))
                self.fixed[i].valid = <uint8_t *>take((rows_room + 7) // 8)
        self.wants_map = MAP_NAME in names
        if self.wants_map:
            self.map_offsets = <int32_t *>take((rows_room + 1) * 4)
        for i in range(VARYING):
            if i >= V_NAMES:
                self.varying[i].wanted = self.wants_map
            else:
                self.varying[i].wanted = VARYING_NAMES[i] in names
            if self.varying[i].wanted:
                self.varying[i].offsets_room = rows_room + 1
                self.varying[i].offsets = <int32_t *>take((rows_room + 1) * 4)
                self.varying[i].valid = <uint8_t *>take((rows_room + 7) // 8)
        self.clear()

    def __dealloc__(self):
        cdef int i
        for i in range(FIXED):
            free(self.fixed[i].at)
            free(self.fixed[i].valid)
        for i in range(VARYING):
            free(self.varying[i].offsets)
            free(self.varying[i].at)
            free(self.varying[i].valid)
        free(self.map_offsets)

    cdef void clear(self):
        cdef int i
        self.rows = 0
        self.compressed = []
        for i in range(FIXED):
            self.fixed[i].nulls = 0
            if self.fixed[i].wanted:
                memset(self.fixed[i].valid, 0xFF, (self.rows_room + 7) // 8)
        for i in range(VARYING):
            self.varying[i].nulls = 0
            self.varying[i].used = 0
            self.varying[i].count = 0
            if self.varying[i].wanted:
                self.varying[i].offsets[0] = 0
                memset(self.varying[i].valid, 0xFF, (self.rows_room + 7) // 8)
        if self.wants_map:
            self.map_offsets[0] = 0

    cdef int put32(self, int column, int32_t value) except -1:
        (<int32_t *>self.fixed[column].at)[self.rows] = value
        return 0

    cdef int put64(self, int column, int64_t value) except -1:
        (<int64_t *>self.fixed[column].at)[self.rows] = value
        return 0

    cdef int put_ms(self, int column, int64_t value) except -1:
        if TIMESTAMP_MIN_MS <= value <= TIMESTAMP_MAX_MS:
            (<int64_t *>self.fixed[column].at)[self.rows] = value * 1000
        else:
            (<int64_t *>self.fixed[column].at)[self.rows] = 0
            self.fixed[column].valid[self.rows >> 3] &= ~(1 << (self.rows & 7))
            self.fixed[column].nulls += 1
        return 0

    cdef int put_text(self, int column, const unsigned char *at, Py_ssize_t size) except -1:
        cdef Varying *out = &self.varying[column]
        cdef size_t room
        cdef void *grown
        if out.used + size > out.room:
            room = max(out.used + size, 2 * out.room, <size_t>65536)
            grown = realloc(out.at, room)
            if grown == NULL:
                raise MemoryError
            out.at = <unsigned char *>grown
            out.room = room
        if out.count + 2 > out.offsets_room:
            grown = realloc(out.offsets, 2 * out.offsets_room * 4)
            if grown == NULL:
                raise MemoryError
            out.offsets = <int32_t *>grown
            out.offsets_room *= 2
        if size > 0:
            memcpy(out.at + out.used, at, size)
        out.used += size
        if out.used > 0x7FFFFFFF:
            raise OverflowError("a column of a batch has more than 2 GiB")
        out.count += 1
        out.offsets[out.count] = <int32_t>out.used
        return 0

    cdef int put_found(self, int column, const Text *found) except -1:
        """Append a text, or a null for ``NULL``."""
        if found != NULL:
            return self.put_text(column, found.at, found.size)
        self.put_text(column, NULL, 0)
        self.varying[column].valid[self.rows >> 3] &= ~(1 << (self.rows & 7))
        self.varying[column].nulls += 1
        return 0

    cdef int put_object(self, int column, object text) except -1:
        cdef bytes data
        if text is None:
            return self.put_found(column, NULL)
        data = (<str>text).encode("utf-8")
        return self.put_text(column, data, len(data))


@cython.no_gc
cdef class Block:
    """The rows of one batch; its memory is reused once the block is freed.

    Args:
        columns: The rows.
        free: The list that takes the memory then.
    """

    def __init__(self, Columns columns not None, list free not None):
        self.columns = columns
        self.free = free

    def __dealloc__(self):
        self.free.append(self.columns)

    @property
    def rows(self):
        """The number of rows."""
        return self.columns.rows

    @property
    def compressed(self):
        """Row and system flag of each compressed body."""
        return self.columns.compressed

    def fixed(self, name):
        """Nulls, address of validity, address of values, bytes of values."""
        cdef Py_ssize_t index = FIXED_NAMES.index(name)
        cdef Fixed *column = &self.columns.fixed[index]
        cdef int width = 4 if index <= F_BODY_CRC else 8
        return column.nulls, <size_t>column.valid, <size_t>column.at, self.columns.rows * width

    def varying(self, name):
        """Nulls, address of validity, address of offsets, address of data, bytes of data."""
        cdef Py_ssize_t index = VARYING_NAMES.index(name)
        return parts_of(&self.columns.varying[index])

    def entries(self):
        """Address of the map's offsets, number of pairs, then names and values as varying."""
        return (
            <size_t>self.columns.map_offsets,
            self.columns.varying[V_NAMES].count,
            parts_of(&self.columns.varying[V_NAMES]),
            parts_of(&self.columns.varying[V_VALUES]),
        )


cdef void *take(size_t size) except NULL:
    cdef void *at = malloc(max(size, <size_t>8))
    if at == NULL:
        raise MemoryError
    return at


cdef tuple parts_of(Varying *column):
    return (
        column.nulls, <size_t>column.valid, <size_t>column.offsets, <size_t>column.at, column.used
    )
