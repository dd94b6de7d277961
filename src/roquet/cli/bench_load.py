"""The loads of ``roquet bench``: many sends at once, and consumption as fast as it goes.

Owns :class:`Tally`, which counts, and the two loads. A send that fails with a retriable error is
counted, and the load continues; any other failure ends it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from roquet.cli.latencies import Latencies
from roquet.client import (
    ClientOptions,
    ConsumeFromWhere,
    Message,
    MessageModel,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
)
from roquet.client.pace import Pace
from roquet.errors import RoquetError
from roquet.runtime.clock import Clock, SystemClock

__all__ = ["ConsumePlan", "Limits", "SendPlan", "Tally", "consume_load", "send_load"]

GROUP = "roquet-bench"
LOOK_S = 0.1

Show = Callable[[float, str], None]
"""Shows the progress of a load, as a fraction and as text."""


class Limits(Struct, frozen=True, kw_only=True):
    """When a load ends: after a number of messages or seconds, whichever comes first."""

    count: int | None
    seconds: float | None


class SendPlan(Struct, frozen=True, kw_only=True):
    """What to send, and how."""

    topic: str
    size: int
    in_flight: int
    batch: int
    rate: float | None
    tag: str | None
    limits: Limits


class ConsumePlan(Struct, frozen=True, kw_only=True):
    """What to consume, and how.

    Attributes:
        group: The group whose offsets are used and moved; ``None`` moves none.
    """

    topic: str
    group: str | None
    from_first: bool
    in_flight: int
    batch: int
    limits: Limits


class Tally:
    """The counters of a load.

    Args:
        clock: The time; by default the machine's.

    Attributes:
        messages: Messages stored, or received.
        body_bytes: The bytes of their bodies.
        failed: Messages that were not stored.
        less_safe: Messages that were stored less safely than configured.
        first_failure: Why the first one was not stored.
        latencies: From a request to its response, or from the birth of a message to its handler.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.messages = self.body_bytes = self.failed = self.less_safe = 0
        self.first_failure: RoquetError | None = None
        self.latencies = Latencies()
        self._clock = clock or SystemClock()
        self._began_ns: int | None = None
        self._ended_ns = 0

    def now_us(self) -> int:
        """The monotonic time."""
        return self._clock.monotonic_ns() // 1_000

    def now_ms(self) -> int:
        """The time since the epoch."""
        return self._clock.now_ms()

    def begin(self) -> None:
        """Start the measured time, if it has not started."""
        if self._began_ns is None:
            self._began_ns = self._ended_ns = self._clock.monotonic_ns()

    def add(self, messages: int, body_bytes: int) -> None:
        """Count messages that were stored, or received."""
        self.messages += messages
        self.body_bytes += body_bytes
        self._ended_ns = self._clock.monotonic_ns()

    def fail(self, messages: int, error: RoquetError) -> None:
        """Count messages that were not stored."""
        self.failed += messages
        self.first_failure = self.first_failure or error
        self._ended_ns = self._clock.monotonic_ns()

    @property
    def seconds(self) -> float:
        """From the beginning to the last message."""
        return 0.0 if self._began_ns is None else (self._ended_ns - self._began_ns) / 1e9

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds else 0.0


async def send_load(options: ClientOptions, plan: SendPlan, tally: Tally, show: Show) -> None:
    """Send.

    Raises:
        RoquetError: No broker has the topic, or a send failed for good.
    """
    loop = asyncio.get_running_loop()
    timeout_ms = options.request_timeout_ms
    async with Producer(
        options,
        group=GROUP,
        send_timeout_ms=timeout_ms,
        max_in_flight=plan.in_flight,
        max_message_bytes=max(plan.size * plan.batch * 2, 4 << 20),
    ) as producer:
        await producer.queues(plan.topic)
        message = Message(plan.topic, b"x" * plan.size, tags=plan.tag)
        pace = None if plan.rate is None else _SharedPace(plan.rate / plan.batch)
        left = plan.limits.count
        end_s = None if plan.limits.seconds is None else loop.time() + plan.limits.seconds

        async def work() -> None:
            nonlocal left
            while left != 0 and (end_s is None or loop.time() < end_s):
                number = plan.batch if left is None else min(plan.batch, left)
                if left is not None:
                    left -= number
                if pace is not None and not await pace.wait(end_s):
                    return
                await _send(producer, message, number, tally)

        tally.begin()
        workers = [asyncio.ensure_future(work()) for _ in range(plan.in_flight)]
        await _watch(workers, plan.limits, tally, show, is_patient=True)


class _SharedPace:
    """A pace shared by many senders."""

    def __init__(self, rate: float) -> None:
        self._pace = Pace(rate)
        self._turn = asyncio.Lock()

    async def wait(self, end_s: float | None) -> bool:
        """Wait for a turn; return whether it came before the end, on the loop's clock."""
        async with self._turn:
            loop = asyncio.get_running_loop()
            if end_s is not None and loop.time() >= end_s:
                return False
            await self._pace.wait()
            return end_s is None or loop.time() < end_s


async def _send(producer: Producer, message: Message, number: int, tally: Tally) -> None:
    began_us = tally.now_us()
    try:
        if number == 1:
            results = [await producer.send(message)]
        else:
            results = await producer.send_batch([message] * number)
    except RoquetError as error:
        if not error.retriable:
            raise
        tally.fail(number, error)
    else:
        tally.latencies.add(tally.now_us() - began_us)
        tally.less_safe += sum(each.status is not SendStatus.SEND_OK for each in results)
        tally.add(number, number * len(message.body))


async def consume_load(options: ClientOptions, plan: ConsumePlan, tally: Tally, show: Show) -> None:
    """Consume.

    Raises:
        RoquetError: The consumer cannot be started.
    """
    done = asyncio.Event()

    def note(messages: list[ReceivedMessage]) -> None:
        count = plan.limits.count
        if count is not None:
            messages = messages[: max(count - tally.messages, 0)]
        if messages:
            tally.begin()
            now_ms = tally.now_ms()
            for each in messages:
                tally.latencies.add((now_ms - each.born_timestamp_ms) * 1_000)
            tally.add(len(messages), sum(len(each.body) for each in messages))
        if count is not None and tally.messages >= count:
            done.set()

    async def handle(message: ReceivedMessage) -> None:
        note([message])

    async def handle_batch(messages: list[ReceivedMessage]) -> None:
        note(messages)

    first, last = (
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    )
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as folder:
        consumer = PushConsumer(
            options,
            group=plan.group or GROUP,
            handler=handle if plan.batch == 1 else None,
            batch_handler=None if plan.batch == 1 else handle_batch,
            message_model=(
                MessageModel.BROADCASTING if plan.group is None else MessageModel.CLUSTERING
            ),
            consume_from=first if plan.from_first else last,
            concurrency=plan.in_flight,
            consume_batch_max=plan.batch,
            pull_batch_max=max(plan.batch, 32),
            offsets_folder=Path(folder),
        )
        consumer.subscribe(plan.topic)
        async with consumer:
            await consumer.client.routes.route(consumer.client.wrap(plan.topic))
            await _watch([asyncio.ensure_future(_wait(done))], plan.limits, tally, show)


async def _wait(done: asyncio.Event) -> None:
    await done.wait()


async def _watch(
    workers: Sequence[asyncio.Future[None]],
    limits: Limits,
    tally: Tally,
    show: Show,
    *,
    is_patient: bool = False,
) -> None:
    """Show the progress of the workers until they are done, time is up or one of them fails.

    Args:
        workers: The workers.
        limits: When the load is over.
        tally: Their counters.
        show: Shows the progress.
        is_patient: Whether they check the time themselves, and are waited for.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    running: set[asyncio.Future[None]] = set(workers)
    try:
        while running:
            spent_s = loop.time() - began_s
            is_over = limits.seconds is not None and spent_s >= limits.seconds
            if is_over and not is_patient:
                break
            ended, running = await asyncio.wait(
                running, timeout=LOOK_S, return_when=asyncio.FIRST_EXCEPTION
            )
            for each in ended:
                each.result()
            part = 0.0
            if limits.seconds is not None:
                part = spent_s / limits.seconds
            if limits.count is not None:
                part = max(part, (tally.messages + tally.failed) / limits.count)
            show(min(part, 1.0), f"{tally.rate:,.0f} messages/s")
    finally:
        await _end(workers)


async def _end(workers: Sequence[asyncio.Future[None]]) -> None:
    for each in workers:
        each.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
