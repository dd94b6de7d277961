"""A history checker: compares what clients sent and read with what a queue may do.

Owns the record of operations and the rules below, named after Jepsen's Kafka workload. Every value
must be unique; then a queue is checked in O(n log n) without searching for an order.

==================== ======================================================================
anomaly              what it means
==================== ======================================================================
inconsistent-offset  one offset of a queue showed two values
lost-write           an acknowledged value is not in the final read, though it should be
duplicate            one value is at two offsets, and its producer did not send it twice
aborted-read         a value was read whose send was refused
unknown-value        a value was read that nobody sent
order                two sends of one producer to one queue, the second begun after the first
                     was acknowledged, lie the other way round; or an acknowledgement names
                     another offset than the one the value has
poll-skip            a reader was led past a value, or back, within one session
gap                  offsets of the final read are not dense
resurrection         an offset has another value after a restart than before it
==================== ======================================================================

A send without a response, or with an inconclusive one, is *maybe*: it may be stored or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Anomaly", "History", "Outcome", "Poll", "QueueKey", "Seen", "Send", "check"]

QueueKey = tuple[str, int]
"""A topic, and the id of one of its queues.

Example:
    queue_key: QueueKey = ("Orders", 0)
"""


class Outcome(Enum):
    """What a producer knows about a send.

    Example:
        assert Outcome("maybe") is Outcome.MAYBE
    """

    OK = "ok"
    FAIL = "fail"
    MAYBE = "maybe"


@dataclass(slots=True)
class Send:
    """One send of one value.

    ``invoked`` and ``completed`` are positions in the order of events; a send without a response
    has no ``completed``.

    Example:
        send = Send("shop", ("Orders", 0), "order-17", invoked=1)
        assert send.outcome is Outcome.MAYBE
    """

    producer: str
    queue: QueueKey
    value: str
    invoked: int
    completed: int | None = None
    outcome: Outcome = Outcome.MAYBE
    queue_offset: int | None = None
    attempts: int = 1


class Seen(NamedTuple):
    """A value at an offset.

    Example:
        assert Seen(0, "order-17").value == "order-17"
    """

    queue_offset: int
    value: str


@dataclass(slots=True)
class Poll:
    """One read of a queue within a reader's session; ``life`` counts the broker's starts.

    Example:
        poll = Poll("reader-1", ("Orders", 0), from_offset=0, seen=[Seen(0, "order-17")])
    """

    session: str
    queue: QueueKey
    from_offset: int
    seen: Sequence[Seen]
    life: int = 0


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A broken rule, and where.

    Example:
        print(Anomaly("lost-write", ("Orders", 0), "'order-17' is not there"))
    """

    kind: str
    queue: QueueKey
    detail: str


@dataclass
class History:
    """Everything that clients did, in the order in which they saw it.

    Example:
        history = History()
        history.invoke("shop", ("Orders", 0), "order-17")
        history.complete("order-17", Outcome.OK, queue_offset=0)
        assert check(history, {("Orders", 0): [Seen(0, "order-17")]}) == []
    """

    sends: dict[str, Send] = field(default_factory=dict)
    polls: list[Poll] = field(default_factory=list)
    _events: int = 0

    def invoke(self, producer: str, queue: QueueKey, value: str) -> Send:
        """Record the start of a send; the same value again is a producer's retry.

        Example:
            history = History()
            assert history.invoke("shop", ("Orders", 0), "order-17").attempts == 1
        """
        self._events += 1
        known = self.sends.get(value)
        if known is not None:
            known.attempts += 1
            return known
        send = self.sends[value] = Send(producer, queue, value, self._events)
        return send

    def complete(self, value: str, outcome: Outcome, queue_offset: int | None = None) -> None:
        """Record the outcome of a send.

        Example:
            history = History()
            history.invoke("shop", ("Orders", 0), "order-17")
            history.complete("order-17", Outcome.FAIL)
        """
        self._events += 1
        send = self.sends[value]
        send.completed = self._events
        send.outcome = outcome
        send.queue_offset = queue_offset

    def poll(self, poll: Poll) -> None:
        """Record a read.

        Example:
            history = History()
            history.poll(Poll("reader-1", ("Orders", 0), from_offset=0, seen=[]))
        """
        self.polls.append(poll)


def check(
    history: History,
    final: Mapping[QueueKey, Sequence[Seen]],
    *,
    first_offsets: Mapping[QueueKey, int] | None = None,
) -> list[Anomaly]:
    """Return all anomalies of a history.

    Args:
        history: What the clients did.
        final: Every queue read from its first offset to its last, after all faults have ended.
        first_offsets: Where the final reads begin because older messages have expired; by default
            at 0.

    Returns:
        The anomalies; empty if a queue may have this history.

    Example:
        history = History()
        history.invoke("shop", ("Orders", 0), "order-17")
        history.complete("order-17", Outcome.OK, queue_offset=0)
        (lost,) = check(history, {("Orders", 0): []})
        assert lost.kind == "lost-write"
    """
    first = dict(first_offsets or {})
    return [
        *_offsets(history, final),
        *_writes(history, final, first),
        *_order(history, final),
        *_polls(history),
        *_gaps(final, first),
    ]


def _offsets(history: History, final: Mapping[QueueKey, Sequence[Seen]]) -> Iterator[Anomaly]:
    """Check that an offset has one value: within one run of the broker, and across runs."""
    values: dict[tuple[QueueKey, int], tuple[str, int | None]] = {}
    reads: list[tuple[QueueKey, Iterable[Seen], int | None]] = [
        (poll.queue, poll.seen, poll.life) for poll in history.polls
    ]
    reads += [(queue, seen, None) for queue, seen in final.items()]
    for queue, seen, life in reads:
        for offset, value in seen:
            known, known_life = values.setdefault((queue, offset), (value, life))
            if known != value:
                kind = "inconsistent-offset" if known_life == life else "resurrection"
                yield Anomaly(kind, queue, f"offset {offset} shows {known!r} and {value!r}")


def _writes(
    history: History, final: Mapping[QueueKey, Sequence[Seen]], first: Mapping[QueueKey, int]
) -> Iterator[Anomaly]:
    places: dict[str, list[tuple[QueueKey, int]]] = defaultdict(list)
    for queue, seen in final.items():
        for offset, value in seen:
            places[value].append((queue, offset))
    for value, found in places.items():
        queue = found[0][0]
        send = history.sends.get(value)
        if send is None:
            yield Anomaly("unknown-value", queue, f"nobody sent {value!r}")
            continue
        if len(found) > send.attempts:
            yield Anomaly("duplicate", queue, f"{value!r} is at {[o for _, o in found]}")
        if any(place != send.queue for place, _ in found):
            yield Anomaly("duplicate", queue, f"{value!r} was sent to {send.queue}")
        if send.outcome is Outcome.FAIL:
            yield Anomaly("aborted-read", queue, f"{value!r} was refused but is stored")
    for send in history.sends.values():
        if send.outcome is not Outcome.OK or send.value in places:
            continue
        if send.queue_offset is not None and send.queue_offset < first.get(send.queue, 0):
            continue
        yield Anomaly("lost-write", send.queue, f"{send.value!r} at {send.queue_offset}")


def _order(history: History, final: Mapping[QueueKey, Sequence[Seen]]) -> Iterator[Anomaly]:
    for queue, seen in final.items():
        newest: dict[str, Send] = {}
        for offset, value in seen:
            send = history.sends.get(value)
            if send is None:
                continue
            if send.queue_offset is not None and send.queue_offset != offset:
                yield Anomaly(
                    "order",
                    queue,
                    f"{value!r} was acknowledged at {send.queue_offset}, but is at {offset}",
                )
            before = newest.get(send.producer)
            if before is None or send.invoked > before.invoked:
                newest[send.producer] = send
            elif send.completed is not None and send.completed < before.invoked:
                yield Anomaly("order", queue, f"{value!r} is stored after {before.value!r}")


def _polls(history: History) -> Iterator[Anomaly]:
    following: dict[tuple[str, QueueKey], int] = {}
    for poll in history.polls:
        session = (poll.session, poll.queue)
        expected = following.get(session, poll.from_offset)
        if poll.from_offset != expected:
            yield Anomaly("poll-skip", poll.queue, f"resumed at {poll.from_offset}, not {expected}")
        expected = poll.from_offset
        for offset, _ in poll.seen:
            if offset != expected:
                yield Anomaly("poll-skip", poll.queue, f"{offset} follows {expected - 1}")
            expected = offset + 1
        following[session] = expected


def _gaps(
    final: Mapping[QueueKey, Sequence[Seen]], first: Mapping[QueueKey, int]
) -> Iterator[Anomaly]:
    for queue, seen in final.items():
        if seen and seen[0].queue_offset != first.get(queue, 0):
            yield Anomaly("gap", queue, f"begins at {seen[0].queue_offset}")
        for before, after in pairwise(seen):
            if after.queue_offset != before.queue_offset + 1:
                yield Anomaly("gap", queue, f"{after.queue_offset} follows {before.queue_offset}")
