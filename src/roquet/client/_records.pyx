"""Decodes the records in a response body into messages, compiled.

Reads plain records, as defined in ``record_reader.py``, and stops at the first other one.

Every length from the wire is checked against the remaining bytes before it is used.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_XDECREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

from functools import lru_cache

from roquet.client.message import ReceivedMessage
from roquet.model import sys_flag as flags
from roquet.model.host import Host

from roquet.format._layout cimport *
from roquet.format._record cimport GOOD_, Layout, lay_out
from roquet.model._bytes cimport roquet_get32, roquet_get64
from roquet.model._constants cimport *
from roquet.model._text cimport Text


cdef extern from "Python.h":
    PyObject *PyObject_Vectorcall(
        PyObject *callable, PyObject **arguments, size_t count, PyObject *names
    ) except NULL


cdef enum:
    FIELDS = 17

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

cdef uint32_t ODD_FLAGS = flags.BORN_HOST_V6 | flags.STORE_HOST_V6
cdef uint32_t WRAPPED_FLAGS = flags.INNER_BATCH | flags.NEED_UNWRAP


@lru_cache(maxsize=1024)
def text_of(bytes data):
    return data.decode("utf-8", "replace")


@lru_cache(maxsize=1024)
def host_of(bytes data):
    return Host.unpack(data)


def read_plain(
    bytes data not None, Py_ssize_t position, list found not None,
    str broker_name not None, object queue_id, int64_t offset_delta,
):
    """Add the messages of plain records from ``position`` on.

    Args:
        data: Records, one after the other.
        position: Where the first begins.
        found: The list to which the messages are added.
        broker_name: The broker that they came from.
        queue_id: Their queue.
        offset_delta: What a static topic adds to the offsets in the records.

    Returns:
        Where the first record starts that is left to the reference path.
    """
    cdef const unsigned char *start = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef const unsigned char *at
    cdef const unsigned char *known_born = NULL
    cdef const unsigned char *known_store = NULL
    cdef Text known_topic
    cdef Layout record
    cdef Py_ssize_t left
    cdef object topic = None, born_host = None, store_host = None
    known_topic.at = NULL
    known_topic.size = -1
    while True:
        left = PyBytes_GET_SIZE(data) - position
        if left < RECORD_BYTES_MIN:
            break
        at = start + position
        if roquet_get32(at + RECORD_MAGIC_AT) != MAGIC_V1 or lay_out(at, left, left, &record) != GOOD_:
            break
        if record.sys_flag & ODD_FLAGS:
            break
        if record.sys_flag & WRAPPED_FLAGS == WRAPPED_FLAGS:
            break
        if (
            record.topic.size != known_topic.size
            or memcmp(record.topic.at, known_topic.at, known_topic.size) != 0
        ):
            topic = text_of(record.topic.at[:record.topic.size])
            known_topic = record.topic
        if known_born == NULL or memcmp(record.born_host, known_born, IPV4_HOST_BYTES) != 0:
            born_host = host_of(record.born_host[:IPV4_HOST_BYTES])
            known_born = record.born_host
        if known_store == NULL or memcmp(record.store_host, known_store, IPV4_HOST_BYTES) != 0:
            store_host = host_of(record.store_host[:IPV4_HOST_BYTES])
            known_store = record.store_host
        found.append(
            message(at, &record, topic, broker_name, queue_id, offset_delta, born_host, store_host)
        )
        position += record.size
    return position


cdef object message(
    const unsigned char *at, const Layout *record, object topic, object broker_name,
    object queue_id, int64_t offset_delta, object born_host, object store_host,
):
    cdef object body = PyBytes_FromStringAndSize(<const char *>record.body.at, record.body.size)
    cdef object queue_offset = <int64_t>roquet_get64(at + RECORD_QUEUE_OFFSET_AT)
    cdef object physical_offset = <int64_t>roquet_get64(at + RECORD_PHYSICAL_OFFSET_AT)
    cdef object store_size = record.size
    cdef object data = PyBytes_FromStringAndSize(
        <const char *>record.properties.at, record.properties.size
    )
    cdef object flag = <int32_t>roquet_get32(at + RECORD_FLAG_AT)
    cdef object sys_flag = <int32_t>record.sys_flag
    cdef object crc = roquet_get32(at + RECORD_BODY_CRC_AT)
    cdef object born_ms = <int64_t>roquet_get64(at + RECORD_BORN_TIMESTAMP_AT)
    cdef object store_ms = record.store_ms
    cdef object times = <int32_t>roquet_get32(at + RECORD_RECONSUME_TIMES_AT)
    cdef object prepared = <int64_t>roquet_get64(at + RECORD_PREPARED_TRANSACTION_OFFSET_AT)
    cdef PyObject *arguments[FIELDS]
    cdef PyObject *made
    if offset_delta:
        # As objects: both come from the broker, and their sum may need more than 64 bits.
        queue_offset = queue_offset + <object>offset_delta
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
    made = PyObject_Vectorcall(<PyObject *>ReceivedMessage, arguments, 0, <PyObject *>NAMES)
    result = <object>made
    Py_XDECREF(made)
    return result
