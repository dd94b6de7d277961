# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What plain requests moved, counted by the compiled lane of the wire.

A request costs three additions. The broker's statistics collect the counts every few seconds, so
no request needs a Python object for them.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef class Counted:
    """Something that requests are about, with what they moved since somebody asked.

    It is on a list from the first of them on, so that it is asked even if nothing else knows it
    any more by then.
    """

    def __dealloc__(self):
        free(self._by_queue)

    cdef int reserve(self, list moved, int32_t queue_id) except -1:
        """Make room for a count before anything is done: it must not fail afterwards."""
        cdef Py_ssize_t room = max(<Py_ssize_t>queue_id + 1, 2 * self._room)
        cdef void *grown
        if queue_id >= self._room:
            grown = realloc(self._by_queue, room * sizeof(QueueCounts))
            if grown == NULL:
                raise MemoryError
            self._by_queue = <QueueCounts *>grown
            memset(self._by_queue + self._room, 0, (room - self._room) * sizeof(QueueCounts))
            self._room = room
        if not self._is_listed:
            moved.append(self)
            self._is_listed = True
        return 0

    cdef void count(self, int32_t queue_id, int64_t messages, int64_t size_bytes) noexcept:
        self._by_queue[queue_id].requests += 1
        self._messages += messages
        self._bytes += size_bytes

    cdef tuple take(self):
        """Messages, bytes and, by queue that was moved, the counts; they start anew."""
        cdef Py_ssize_t queue_id
        cdef QueueCounts *queue
        cdef list queues = []
        for queue_id in range(self._room):
            queue = &self._by_queue[queue_id]
            if queue.requests:
                queues.append((queue_id, queue.requests, queue.fall_bytes, queue.fall_ms))
                queue.requests = 0
        taken = self._messages, self._bytes, queues
        self._messages = self._bytes = 0
        self._is_listed = False
        return taken
