"""The Python client under load: the program that :mod:`benchmarks.client` starts.

One process with one event loop, as a user's would be. It prints one JSON line with the results of
the measured time: messages per second, CPU time of this process per message, percentiles of the
latency, and anonymous memory over the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path

from roquet.client import Message, Producer, PushConsumer, ReceivedMessage, SendStatus
from roquet.remoting.bodies.client import ConsumeFromWhere
from roquet.runtime.event_loop import loop_factory

GROUP = "bench_group"
SAMPLE_S = 0.25
DRAIN_TIMEOUT_S = 60
LATENCIES_MAX = 1 << 20


def anonymous_kb() -> int:
    """The anonymous memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return 0


CONSUMED_POLL_S = 0.1
MEASURED_MIN_S = 0.5


class Counts:
    """The counters of the measured time.

    Attributes:
        sent: Messages that were stored.
        consumed: Messages that the handler got.
        failed: Sends that failed.
        latencies_s: From send to result.
        anonymous_kb: Anonymous memory, one sample after the other.
    """

    def __init__(self) -> None:
        self.anonymous_kb: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Start measuring."""
        self.sent = self.consumed = self.failed = 0
        self.latencies_s: list[float] = []
        self._began_s = time.perf_counter()
        self._began_cpu_s = _cpu_s()

    def values(self, messages: int) -> dict[str, object]:
        """The numbers of the measured time, for that many messages."""
        spent_s = time.perf_counter() - self._began_s
        cpu_s = _cpu_s() - self._began_cpu_s
        ordered = sorted(self.latencies_s)
        return {
            "msgs_per_s": messages / spent_s,
            "client_cpu_us_per_msg": cpu_s * 1e6 / max(messages, 1),
            "failed": self.failed,
            **{
                f"p{part}_us": ordered[(len(ordered) - 1) * part // 100] * 1e6
                for part in (50, 99)
                if ordered
            },
            "anon_kb": self.anonymous_kb,
        }


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Load:
    """The load of one process.

    Args:
        options: What, how much, how long.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._body = b"x" * options.size
        self._counts = Counts()
        self._is_over = False

    async def run(self) -> dict[str, object]:
        """Load, and measure."""
        sampling = asyncio.ensure_future(self._sample())
        try:
            match self._options.mode:
                case "send":
                    return await self._send()
                case "consume":
                    return await self._consume()
            return await self._both()
        finally:
            sampling.cancel()

    async def _sample(self) -> None:
        while True:
            self._counts.anonymous_kb.append(anonymous_kb())
            await asyncio.sleep(SAMPLE_S)

    # ------------------------------------------------------------------------------- the loads

    async def _send(self) -> dict[str, object]:
        """Sends for a time, a fixed number of them in flight."""
        options = self._options
        async with Producer(options.namesrv, group=GROUP, linger_ms=options.linger_ms) as producer:
            tasks = self._senders(producer, takewhile(lambda _: not self._is_over, count()))
            await asyncio.sleep(options.warm)
            self._counts.begin()
            await asyncio.sleep(options.seconds)
            values = self._counts.values(self._counts.sent)
            self._is_over = True
            await asyncio.gather(*tasks)
        return values

    async def _consume(self) -> dict[str, object]:
        """Consumption of what is there, for a time or until nothing is left."""
        async with self._consumer():
            await asyncio.sleep(self._options.warm)
            self._counts.begin()
            began_s = time.perf_counter()
            last, values = 0, None
            while (spent_s := time.perf_counter() - began_s) < self._options.seconds:
                await asyncio.sleep(CONSUMED_POLL_S)
                if self._counts.consumed == last:
                    break
                last = self._counts.consumed
                values = self._counts.values(last)
            if values is None or spent_s < min(self._options.seconds, MEASURED_MIN_S):
                raise SystemExit("the topic has too few messages for the measured time")
            return values

    async def _both(self) -> dict[str, object]:
        """A number of sends, all of them consumed by the same process."""
        wanted = self._options.count
        async with self._consumer(), Producer(self._options.namesrv, group=GROUP) as producer:
            self._counts.begin()
            await asyncio.gather(*self._senders(producer, iter(range(wanted))))
            deadline_s = time.perf_counter() + DRAIN_TIMEOUT_S
            while self._counts.consumed < self._counts.sent:
                if time.perf_counter() > deadline_s:
                    raise SystemExit(f"{self._counts.consumed} of {wanted} messages came")
                await asyncio.sleep(0.05)
            return self._counts.values(self._counts.sent)

    # ----------------------------------------------------------------------------------- parts

    def _senders(self, producer: Producer, turns: Iterator[object]) -> list[asyncio.Task[None]]:
        """Tasks that send one message after the other, until the turns are used up."""
        topic, body, counts = self._options.topic, self._body, self._counts
        # If memory is measured, only the client's own may grow.
        latencies_max = LATENCIES_MAX if self._options.mode == "send" else 0

        async def send() -> None:
            for _ in turns:
                began_s = time.perf_counter()
                message = Message(topic, body, tags="TagA", keys="order-4711")
                result = await producer.send(message)
                if result.status is SendStatus.SEND_OK:
                    counts.sent += 1
                    if len(counts.latencies_s) < latencies_max:
                        counts.latencies_s.append(time.perf_counter() - began_s)
                else:
                    counts.failed += 1

        return [asyncio.ensure_future(send()) for _ in range(self._options.in_flight)]

    def _consumer(self) -> PushConsumer:
        counts = self._counts

        async def handle(message: ReceivedMessage) -> None:
            if message.body:
                counts.consumed += 1

        async def handle_batch(messages: list[ReceivedMessage]) -> None:
            for message in messages:
                if message.body:
                    counts.consumed += 1

        options = self._options
        consumer = PushConsumer(
            options.namesrv,
            group=options.group,
            handler=None if options.batches else handle,
            batch_handler=handle_batch if options.batches else None,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe(options.topic)
        return consumer


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("send", "consume", "both"))
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", default="bench_consumers")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--linger-ms", type=int, default=0, help="gather sends in batches")
    parser.add_argument("--batches", action="store_true", help="the handler takes batches")
    parser.add_argument("--warm", type=float, default=2)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--count", type=int, default=100_000, help="messages of 'both'")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run one load and print its numbers."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        print(json.dumps(runner.run(Load(parse(arguments)).run())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
