"""Counts what plain requests moved, in compiled code.

A request costs three additions. The broker's statistics collect the counts every few seconds, so
no request needs a Python object for them.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef class Counted:
    """The subject of requests, with counts of what they moved since the last collection.

    It is on a list from the first request on, so that its counts are collected even if nothing
    else refers to it by then.
    """

    def __dealloc__(self):
        free(self.by_queue)

    cdef int reserve(self, list moved, int32_t queue_id) except -1:
        """Make room for a count in advance: counting must not fail afterwards."""
        cdef Py_ssize_t room = max(<Py_ssize_t>queue_id + 1, 2 * self._room)
        cdef void *grown
        if queue_id >= self._room:
            grown = realloc(self.by_queue, room * sizeof(QueueCounts))
            if grown == NULL:
                raise MemoryError
            self.by_queue = <QueueCounts *>grown
            memset(self.by_queue + self._room, 0, (room - self._room) * sizeof(QueueCounts))
            self._room = room
        if not self._is_listed:
            moved.append(self)
            self._is_listed = True
        return 0

    cdef void count(self, int32_t queue_id, int64_t messages, int64_t size_bytes) noexcept:
        self.by_queue[queue_id].requests += 1
        self._messages += messages
        self._bytes += size_bytes

    cdef tuple take(self):
        """Return messages, bytes and the counts of each queue, and reset them."""
        cdef Py_ssize_t queue_id
        cdef QueueCounts *queue
        cdef list queues = []
        for queue_id in range(self._room):
            queue = &self.by_queue[queue_id]
            if queue.requests:
                queues.append((queue_id, queue.requests, queue.fall_bytes, queue.fall_ms))
                queue.requests = 0
        taken = self._messages, self._bytes, queues
        self._messages = self._bytes = 0
        self._is_listed = False
        return taken
