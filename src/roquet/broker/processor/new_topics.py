"""Sends that wait until a new topic is in the file.

Owns their order: sends to a topic are stored in the order of arrival, so a send that arrives while
others wait for its topic queues behind them, even if the topic exists by then. At most
:data:`SENDS_A_TURN` sends of a topic continue in the first iteration of the loop, and twice as many
in each further one: producers send a new message per response, and the queue has to drain.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from roquet.broker.manager.topic_config import TopicConfigManager

__all__ = ["BODIES_BYTES_MAX", "SENDS_A_TURN", "GoOn", "NewTopics"]


BODIES_BYTES_MAX = 64 << 20
"""Limit on the bodies of all waiting sends."""

SENDS_A_TURN = 64

GoOn = Callable[[Exception | None], bool]
"""Continues a send, or fails it with the error of the topic's creation; false if the topic has to
be created again."""


class _Waiting(NamedTuple):
    size_bytes: int
    go_on: GoOn


class NewTopics:
    """The waiting sends.

    Args:
        topics: Calls back once a topic is created.
        burst_ended: Called after sends have continued.
    """

    def __init__(self, topics: TopicConfigManager, burst_ended: Callable[[], None]) -> None:
        self._topics = topics
        self._burst_ended = burst_ended
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._bytes = 0

    def __contains__(self, topic: str) -> bool:
        """Whether sends wait for a topic."""
        return topic in self._waiting

    def wait(self, topic: str, size_bytes: int, go_on: GoOn) -> bool:
        """Let a send wait for its topic; return false if too many wait already."""
        if self._bytes and self._bytes + size_bytes > BODIES_BYTES_MAX:
            return False
        self._bytes += size_bytes
        waiting = self._waiting.get(topic)
        if waiting is not None:
            waiting.append(_Waiting(size_bytes, go_on))
        else:
            self._waiting[topic] = deque([_Waiting(size_bytes, go_on)])
            self._topics.when_committed(partial(self._made, topic))
        return True

    def _made(self, topic: str, error: Exception | None, turn: int = 0) -> None:
        """Continue the sends of a topic, as many as this turn allows."""
        waiting = self._waiting[topic]
        for _ in range(min(len(waiting), SENDS_A_TURN << turn)):
            size_bytes, go_on = waiting[0]
            if not go_on(error):
                # It was deleted meanwhile, and is being created again.
                self._topics.when_committed(partial(self._made, topic))
                self._burst_ended()
                return
            waiting.popleft()
            self._bytes -= size_bytes
        try:
            self._burst_ended()
        finally:
            self._go_on_later(topic, error, turn)

    def _go_on_later(self, topic: str, error: Exception | None, turn: int) -> None:
        """Continue the rest of a topic's sends in another turn, if any are left."""
        if not self._waiting[topic]:
            del self._waiting[topic]
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._made(topic, error, turn + 1)
        else:
            loop.call_soon(self._made, topic, error, turn + 1)
