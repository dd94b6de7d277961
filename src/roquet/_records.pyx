# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled lane of consumers: from records in the body of an answer to messages.

Takes ordinary records, as :mod:`roquet.client.record_reader` says, one behind the other, and stops
at the first that is not; that one is left to the reference path.

Every length that comes from the wire is compared with the bytes that are left before it is used.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_XDECREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp


cdef extern from "Python.h":
    PyObject *PyObject_Vectorcall(
        PyObject *callable, PyObject **arguments, size_t count, PyObject *names
    ) except NULL


cdef extern from "_bytes.h":
    uint32_t roquet_get32(const unsigned char *at) nogil
    uint64_t roquet_get64(const unsigned char *at) nogil


cdef enum:
    HEAD_BYTES = 88
    REST_BYTES_MIN = 3
    HOST_BYTES = 8
    PROPERTIES_BYTES_MAX = 0x7FFF
    FIELDS = 17

cdef uint32_t MAGIC_V1 = 0xDAA320A7u

cdef tuple NAMES = (
    "topic",
    "raw_body",
    "broker_name",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "properties_data",
    "flag",
    "sys_flag",
    "body_crc",
    "born_timestamp_ms",
    "born_host",
    "store_timestamp_ms",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
)


cdef class RecordReader:
    """Makes messages of ordinary records.

    Args:
        make: The class of messages.
        text_of: Makes a topic of its bytes.
        host_of: Makes a host of its packed form.
        odd_flags: Bits of the system flag; a record with one of them is not ordinary.
        wrapped_flags: The same for a record that has all of these.
    """

    cdef object _make
    cdef object _text_of
    cdef object _host_of
    cdef uint32_t _odd_flags
    cdef uint32_t _wrapped_flags

    def __init__(
        self, object make, object text_of, object host_of, uint32_t odd_flags,
        uint32_t wrapped_flags,
    ):
        self._make = make
        self._text_of = text_of
        self._host_of = host_of
        self._odd_flags = odd_flags
        self._wrapped_flags = wrapped_flags

    def read(
        self, bytes data not None, Py_ssize_t position, list found not None,
        str broker_name not None, object queue_id, int64_t offset_delta,
    ):
        """Add messages from ``position`` on; where the first record is that is left."""
        cdef const unsigned char *start = <const unsigned char *>PyBytes_AS_STRING(data)
        cdef const unsigned char *at
        cdef const unsigned char *topic_at
        cdef const unsigned char *known_topic = NULL
        cdef const unsigned char *known_born = NULL
        cdef const unsigned char *known_store = NULL
        cdef Py_ssize_t left, size, body_bytes, topic_bytes, known_topic_bytes = 0, rest
        cdef uint32_t sys_flag
        cdef object topic = None, born_host = None, store_host = None
        while True:
            left = PyBytes_GET_SIZE(data) - position
            if left < HEAD_BYTES + REST_BYTES_MIN:
                break
            at = start + position
            size = <int32_t>roquet_get32(at)
            sys_flag = roquet_get32(at + 36)
            body_bytes = <int32_t>roquet_get32(at + 84)
            if roquet_get32(at + 4) != MAGIC_V1 or size > left or body_bytes < 0:
                break
            if sys_flag & self._odd_flags:
                break
            if sys_flag & self._wrapped_flags == self._wrapped_flags:
                break
            if HEAD_BYTES + body_bytes + REST_BYTES_MIN > size:
                break
            topic_at = at + HEAD_BYTES + body_bytes + 1
            topic_bytes = (topic_at - 1)[0]
            rest = size - (HEAD_BYTES + body_bytes + 1 + topic_bytes + 2)
            if rest < 0 or rest > PROPERTIES_BYTES_MAX:
                break
            if (topic_at[topic_bytes] << 8 | topic_at[topic_bytes + 1]) != rest:
                break
            if (
                known_topic == NULL or topic_bytes != known_topic_bytes
                or memcmp(topic_at, known_topic, topic_bytes) != 0
            ):
                topic = self._text_of(topic_at[:topic_bytes])
                known_topic, known_topic_bytes = topic_at, topic_bytes
            if known_born == NULL or memcmp(at + 48, known_born, HOST_BYTES) != 0:
                born_host = self._host_of(at[48:48 + HOST_BYTES])
                known_born = at + 48
            if known_store == NULL or memcmp(at + 64, known_store, HOST_BYTES) != 0:
                store_host = self._host_of(at[64:64 + HOST_BYTES])
                known_store = at + 64
            found.append(
                self.message(
                    at, size, body_bytes, topic_at + topic_bytes + 2, rest, topic, broker_name,
                    queue_id, offset_delta, born_host, store_host,
                )
            )
            position += size
        return position

    cdef object message(
        self, const unsigned char *at, Py_ssize_t size, Py_ssize_t body_bytes,
        const unsigned char *properties, Py_ssize_t properties_bytes, object topic,
        object broker_name, object queue_id, int64_t offset_delta, object born_host,
        object store_host,
    ):
        cdef object body = PyBytes_FromStringAndSize(<const char *>at + HEAD_BYTES, body_bytes)
        cdef object queue_offset = <int64_t>roquet_get64(at + 20) + offset_delta
        cdef object physical_offset = <int64_t>roquet_get64(at + 28)
        cdef object store_size = size
        cdef object data = PyBytes_FromStringAndSize(<const char *>properties, properties_bytes)
        cdef object flag = <int32_t>roquet_get32(at + 16)
        cdef object sys_flag = <int32_t>roquet_get32(at + 36)
        cdef object crc = roquet_get32(at + 8)
        cdef object born_ms = <int64_t>roquet_get64(at + 40)
        cdef object store_ms = <int64_t>roquet_get64(at + 56)
        cdef object times = <int32_t>roquet_get32(at + 72)
        cdef object prepared = <int64_t>roquet_get64(at + 76)
        cdef PyObject *arguments[FIELDS]
        cdef PyObject *made
        arguments[0] = <PyObject *>topic
        arguments[1] = <PyObject *>body
        arguments[2] = <PyObject *>broker_name
        arguments[3] = <PyObject *>queue_id
        arguments[4] = <PyObject *>queue_offset
        arguments[5] = <PyObject *>physical_offset
        arguments[6] = <PyObject *>store_size
        arguments[7] = <PyObject *>data
        arguments[8] = <PyObject *>flag
        arguments[9] = <PyObject *>sys_flag
        arguments[10] = <PyObject *>crc
        arguments[11] = <PyObject *>born_ms
        arguments[12] = <PyObject *>born_host
        arguments[13] = <PyObject *>store_ms
        arguments[14] = <PyObject *>store_host
        arguments[15] = <PyObject *>times
        arguments[16] = <PyObject *>prepared
        # The names are interned, so that the class compares pointers.
        made = PyObject_Vectorcall(<PyObject *>self._make, arguments, 0, <PyObject *>NAMES)
        answer = <object>made
        Py_XDECREF(made)
        return answer
