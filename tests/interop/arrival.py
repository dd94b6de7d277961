"""What must hold for messages that arrived while servers or consumers came and went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tests.interop.agent import Ack


class Placed(Protocol):
    """A message as any client got it."""

    @property
    def queue_id(self) -> int: ...

    @property
    def queue_offset(self) -> int: ...


def number_of(body: str) -> int:
    return int(body.rpartition("/")[2])


def check_log(acks: Sequence[Ack], stored: Mapping[tuple[int, int], str]) -> None:
    """Every acknowledged message is where the acknowledgement said, and queues are in order.

    A message that was stored but not acknowledged was sent again, so a number may repeat.

    Args:
        acks: The acknowledgements.
        stored: By queue and offset, the bodies that came.
    """
    for ack in acks:
        assert stored[ack.queue_id, ack.queue_offset] == ack.body
    for queue_id in {ack.queue_id for ack in acks}:
        offsets = sorted(offset for queue, offset in stored if queue == queue_id)
        assert offsets == list(range(len(offsets)))
        numbers = [number_of(stored[queue_id, offset]) for offset in offsets]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(numbers[-1] + 1))


def check_arrival(received: Sequence[Placed]) -> None:
    """An orderly consumer may get messages again, but sees new ones in order of their queue."""
    seen: dict[int, int] = {}
    for message in received:
        last = seen.get(message.queue_id, -1)
        assert message.queue_offset <= last + 1, (message, last)
        seen[message.queue_id] = max(last, message.queue_offset)
