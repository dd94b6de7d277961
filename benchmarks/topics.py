"""The cost of a hundred thousand topics and ten thousand groups.

Run with ``make bench`` or ``python -m benchmarks.topics``. Roquet alone: a name server and a broker
get topics and groups over the wire, a list of them in each request, while a producer sends one
message after the other. Then single topics are made and looked up, all of them are listed page by
page, and both servers are restarted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.load import BenchmarkError
from benchmarks.progress import say
from benchmarks.report import NO_GOAL, Goal, Line, bound, show
from benchmarks.services import percentile
from benchmarks.sides import RoquetSide, Running, stopping
from roquet.admin.table_pages import PAGE_ENTRIES, read_pages
from roquet.errors import RoquetError
from roquet.model.data_version import DataVersion
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic_config import TopicConfig
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.bodies.group import SubscriptionGroupList
from roquet.remoting.bodies.topic import (
    CreateTopicListRequestBody,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
)
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers import admin as headers
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from roquet.remoting.headers.send import SendMessageRequestHeaderV2
from tests.interop.process import ProcessError

CREATE, SINGLE, ROUTE, LIST, RESTART = "create", "create one", "route", "list", "restart"

PROBE_TOPIC = "Probe"
LIST_ENTRIES = 1_000
SINGLES = 20
ROUTES = 1_000
TIMEOUT_MS = 60_000
POLL_S = 0.01

WORST_GOAL = bound(250)
START_GOAL = bound(5)


def topic_name(number: int) -> str:
    """The name of a topic."""
    return f"benchmark-topic-of-a-large-cluster-{number:06d}"


class Servers:
    """Sends requests to a running name server and broker.

    Args:
        running: Both.
        client: The client.
    """

    def __init__(self, running: Running, client: RemotingClient) -> None:
        self._running = running
        self._client = client

    async def ask(
        self, code: int, header: Header | None = None, *, body: bytes = b"", namesrv: bool = False
    ) -> RemotingCommand:
        """Send a request to one of them.

        Raises:
            BenchmarkError: It refused.
        """
        address = self._running.namesrv_address if namesrv else self._running.address
        answer = await self._client.invoke(address, code, header, body=body, timeout_ms=TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise BenchmarkError(f"{code} was refused: {answer.code} {answer.remark}")
        return answer

    async def create_topics(self, numbers: Iterable[int]) -> None:
        """Create topics with one request."""
        body = CreateTopicListRequestBody(
            topic_config_list=[
                TopicConfig(topic_name=topic_name(each), read_queue_nums=4, write_queue_nums=4)
                for each in numbers
            ]
        )
        await self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            headers.CreateTopicListRequestHeader(),
            body=encode_body(body),
        )

    async def create_groups(self, numbers: Iterable[int]) -> None:
        """Create groups with one request."""
        body = SubscriptionGroupList(
            group_config_list=[SubscriptionGroupConfig(group_name=f"G-{each}") for each in numbers]
        )
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        await self.ask(code, body=encode_body(body))

    async def route(self, topic: str) -> None:
        """Look up a topic at the name server."""
        header = GetRouteInfoRequestHeader(topic=topic)
        await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, namesrv=True)

    async def wait_route(self, topic: str) -> None:
        """Wait until the name server knows a topic."""
        while True:
            try:
                await self.route(topic)
            except BenchmarkError:
                await asyncio.sleep(POLL_S)
            else:
                return

    async def send(self) -> None:
        """Store a message."""
        header = SendMessageRequestHeaderV2(
            producer_group="bench",
            topic=PROBE_TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp_ms=int(time.time() * 1000),
            flag=0,
        )
        await self.ask(RequestCode.SEND_MESSAGE_V2, header, body=b"probe")

    async def listed(self) -> int:
        """List all topics of the broker, page by page; return their number."""

        async def ask(first: int, version: str) -> RemotingCommand:
            header = headers.GetAllTopicConfigRequestHeader(
                topic_seq=first, data_version=version, max_topic_num=PAGE_ENTRIES
            )
            return await self.ask(RequestCode.GET_ALL_TOPIC_CONFIG, header)

        def decode(body: bytes) -> tuple[DataVersion, dict[str, TopicConfig]]:
            found = decode_body(TopicConfigAndMappingSerializeWrapper, body)
            return found.data_version, found.topic_config_table

        return len(await read_pages(ask, decode, "totalTopicNum"))

    async def listed_at_namesrv(self) -> int:
        """List all topics of the name server; return their number."""
        answer = await self.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, namesrv=True)
        return len(decode_body(TopicList, answer.body).topic_list)


async def timed(work: Awaitable[object]) -> float:
    """How many seconds something takes."""
    began = time.monotonic()
    await work
    return time.monotonic() - began


@asynccontextmanager
async def probing(servers: Servers, took_ms: list[float]) -> AsyncIterator[None]:
    """Send one message after the other meanwhile, and note how long each takes."""

    async def probe() -> None:
        while True:
            took_ms.append(1000 * await timed(servers.send()))

    probes = asyncio.ensure_future(probe())
    try:
        yield
    finally:
        probes.cancel()
        await asyncio.wait([probes])


async def in_lists(count: int, create: Callable[[Sequence[int]], Awaitable[None]]) -> None:
    """Create a number of things, two requests at a time."""
    numbers = iter(range(0, count, LIST_ENTRIES))

    async def work() -> None:
        for first in numbers:
            await create(range(first, min(first + LIST_ENTRIES, count)))

    await asyncio.gather(work(), work())


async def measure(running: Running, topics: int, groups: int) -> list[Line]:
    """The measurements of the first start."""
    async with RemotingClient() as client, RemotingClient() as other:
        servers, producer = Servers(running, client), Servers(running, other)
        await producer.send()
        took_ms: list[float] = []
        async with probing(producer, took_ms):
            say(f"creating {topics:,} topics and {groups:,} groups")
            create_s = await timed(in_lists(topics, servers.create_topics))
            groups_s = await timed(in_lists(groups, servers.create_groups))
            say("creating single topics, asking for routes, listing")
            single_ms = [
                1000 * await timed(servers.create_topics([number]))
                for number in range(topics, topics + SINGLES)
            ]
            await servers.wait_route(topic_name(topics + SINGLES - 1))
            step = max(topics // ROUTES, 1)
            route_ms = [
                1000 * await timed(servers.route(topic_name(number)))
                for number in range(0, topics, step)
            ]
            list_s = await timed(servers.listed())
            names_s = await timed(servers.listed_at_namesrv())
            found = min(await servers.listed(), await servers.listed_at_namesrv())
        if found < topics + SINGLES:
            raise BenchmarkError(f"only {found:,} of {topics + SINGLES:,} topics are listed")
    return [
        line(CREATE, "topics, s", create_s, digits=1),
        line(CREATE, "groups, s", groups_s, digits=1),
        line(CREATE, "another client's p99 send, ms", percentile(took_ms, 0.99), digits=1),
        line(CREATE, "another client's worst send, ms", max(took_ms), WORST_GOAL, 1),
        line(SINGLE, "p50, ms", percentile(single_ms, 0.5), digits=1),
        line(ROUTE, "p50, ms", percentile(route_ms, 0.5), digits=2),
        line(ROUTE, "p99, ms", percentile(route_ms, 0.99), digits=2),
        line(LIST, "broker's, page by page, s", list_s, digits=2),
        line(LIST, "name server's, s", names_s, digits=2),
    ]


async def measure_restart(running: Running, topics: int) -> list[Line]:
    """The measurements of the second start."""
    async with RemotingClient() as client:
        known_s = await timed(Servers(running, client).wait_route(topic_name(topics - 1)))
    return [
        line(RESTART, "until a message is stored, s", running.start_s, START_GOAL, 2),
        line(RESTART, "until all routes are known, s", running.start_s + known_s, digits=2),
    ]


def line(row: str, title: str, value: float, goal: Goal = NO_GOAL, digits: int = 0) -> Line:
    """One line, of Roquet alone."""
    return Line(row, title, None, value, goal, digits)


def run(folder: Path, topics: int, groups: int) -> list[Line]:
    """Start both servers twice, and return the measurements."""
    side = RoquetSide()
    with stopping(side.start(folder, {})) as running:
        lines = asyncio.run(measure(running, topics, groups))
    with stopping(side.start(folder, {})) as running:
        return lines + asyncio.run(measure_restart(running, topics))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--dir", type=Path, default=None, help="where to put the files")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table for programs")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run everything and print it."""
    options = parse(arguments)
    base = Path(tempfile.mkdtemp(prefix="roquet-bench-", dir=options.dir))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and so clean up
    try:
        lines = run(base, options.topics, options.groups)
    except (BenchmarkError, ProcessError, RoquetError, OSError) as error:
        say(f"error: {error}")
        return 2
    finally:
        shutil.rmtree(base, ignore_errors=True)
    facts: dict[str, object] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "topics": options.topics,
        "groups": options.groups,
    }
    return show(lines, facts, json_file=options.json, is_checked=options.check)


if __name__ == "__main__":
    sys.exit(main())
