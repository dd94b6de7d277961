"""Steps from record to record by size; compiled twin of ``row_decoder.walk``."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t

from roquet.format._record cimport (
    BLANK_, ENDED_, FAULT_, FULL_, GOOD_, MORE_, Layout, is_numbered, lay_out,
)

from roquet.spark.log.row_decoder import BLANK, ENDED, FAULT, FULL, MORE

assert (ENDED, FULL, BLANK, FAULT, MORE) == (ENDED_, FULL_, BLANK_, FAULT_, MORE_)


def walk(
    data, Py_ssize_t position, int64_t stop, int64_t end, int64_t base, *, Py_ssize_t records_max
):
    """See :func:`roquet.spark.log.row_decoder.walk`."""
    cdef Py_buffer view
    cdef Layout record
    cdef Py_ssize_t records = 0
    cdef int why = ENDED_
    cdef const unsigned char *at
    if position < 0:
        raise ValueError(f"position {position}")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        at = <const unsigned char *>view.buf
        with nogil:
            while position < stop and position < end:
                if records == records_max:
                    why = FULL_
                    break
                why = lay_out(at + position, view.len - position, end - position, &record)
                if why == GOOD_ and not is_numbered(at + position, base + position):
                    why = FAULT_
                if why != GOOD_:
                    break
                why = ENDED_
                records += 1
                position += record.size
    finally:
        PyBuffer_Release(&view)
    return records, position, why
