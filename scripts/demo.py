#!/usr/bin/env python3
"""``make demo``: a broker from start to stop, with messages over the wire.

Starts ``roquet dev`` in a temporary folder on free ports, finds the broker through the name server,
sends and pulls messages with RocketMQ's remoting protocol, kills the broker with ``kill -9``,
starts it again on the same files and finds every message that was acknowledged. Everything is
stopped and removed at the end. Ends with 0 if all of it worked.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from roquet.cli.facts import DevFacts
from roquet.errors import RoquetError
from roquet.format.commit_log import decode_record
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import TopicRouteData
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.namesrv import GetRouteInfoRequestHeader
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from roquet.runtime.clock import SystemClock

TOPIC = "DemoTopic"
CREATE_TOPIC_KEY = "TBW102"
HAS_SUBSCRIPTION = 4
MESSAGES = [f"hello {number}" for number in range(1, 6)]
STOP_TIMEOUT_S = 30


class Failed(Exception):
    """The demo did not go as it should."""


def say(text: str) -> None:
    """One step, for people."""
    click.secho(f"\n== {text}", bold=True)


class Dev:
    """A running ``roquet dev``."""

    def __init__(self, folder: Path) -> None:
        flags = ["--port", "0", "--namesrv-port", "0", "--json"]
        command = [sys.executable, "-m", "roquet", "dev", str(folder), *flags]
        click.echo("$ roquet dev " + shlex.join([str(folder), *flags]))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Failed("roquet dev did not start; its words are above")
        self.facts = msgspec.json.decode(line, type=DevFacts)
        click.echo(f"name server {self.namesrv}, broker {self.facts.broker.address}")

    @property
    def namesrv(self) -> str:
        """Where the name server is."""
        return self.facts.namesrv.address

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def dev(folder: Path) -> Iterator[Dev]:
    """A running ``roquet dev`` that does not outlive the block."""
    running = Dev(folder)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()
        if running.process.stdout is not None:
            running.process.stdout.close()


def roquet(*arguments: str) -> None:
    """Run a command and show what it prints."""
    click.echo("$ roquet " + shlex.join(arguments))
    done = subprocess.run([sys.executable, "-m", "roquet", *arguments], check=False)  # noqa: S603 - our own program
    if done.returncode:
        raise Failed(f"roquet {arguments[0]} ended with {done.returncode}")


async def find_broker(client: RemotingClient, namesrv: str, topic: str) -> str:
    """Ask the name server who has a topic."""
    answer = await client.invoke(
        namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
    )
    if answer.code != ResponseCode.SUCCESS:
        raise Failed(f"no route for {topic}: {answer.code} {answer.remark}")
    route = decode_body(TopicRouteData, answer.body)
    return route.broker_datas[0].broker_addrs[0]


async def send(client: RemotingClient, broker: str, text: str) -> SendMessageResponseHeader:
    """Send one message to queue 0."""
    header = SendMessageRequestHeaderV2(
        producer_group="demo_producer",
        topic=TOPIC,
        default_topic=CREATE_TOPIC_KEY,
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp_ms=SystemClock().now_ms(),
        flag=0,
        properties="KEYS\x01demo\x02TAGS\x01TagA\x02",
    )
    answer = await client.invoke(broker, RequestCode.SEND_MESSAGE_V2, header, body=text.encode())
    if answer.code != ResponseCode.SUCCESS:
        raise Failed(f"the send was refused: {answer.code} {answer.remark}")
    return decode_header(SendMessageResponseHeader, answer.ext_fields)


async def pull(client: RemotingClient, broker: str) -> list[str]:
    """All messages of queue 0."""
    header = PullMessageRequestHeader(
        consumer_group="demo_consumer",
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=HAS_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    answer = await client.invoke(broker, RequestCode.PULL_MESSAGE, header)
    if answer.code != ResponseCode.SUCCESS:
        raise Failed(f"the pull was refused: {answer.code} {answer.remark}")
    texts: list[str] = []
    position = 0
    while position < len(answer.body):
        record = decode_record(answer.body, position, len(answer.body))
        texts.append(bytes(record.body).decode())
        position += record.store_size
    return texts


async def talk(namesrv: str) -> None:
    """Send the messages and pull them."""
    async with RemotingClient() as client:
        broker = await find_broker(client, namesrv, CREATE_TOPIC_KEY)
        for text in MESSAGES:
            stored = await send(client, broker, text)
            click.echo(
                f"sent   {text!r}: queue {stored.queue_id}, offset {stored.queue_offset}, "
                f"id {stored.msg_id}"
            )
        await check(client, await find_broker(client, namesrv, TOPIC))


async def check(client: RemotingClient, broker: str) -> None:
    """Pull, and compare with what was sent."""
    texts = await pull(client, broker)
    for text in texts:
        click.echo(f"pulled {text!r}")
    if texts != MESSAGES:
        raise Failed(f"sent {MESSAGES}, pulled {texts}")


async def check_again(namesrv: str) -> None:
    """Pull what an earlier process stored."""
    async with RemotingClient() as client:
        await check(client, await find_broker(client, namesrv, TOPIC))


def demo(folder: Path) -> None:
    """The whole story."""
    store = str(folder / "store")
    say("Start a name server and a broker in one process")
    with dev(folder) as running:
        say("Send five messages and pull them, over RocketMQ's protocol")
        asyncio.run(talk(running.namesrv))
        say("Kill the process with SIGKILL, as a crash would")
        running.end(signal.SIGKILL)
    say("Start again on the same files: every acknowledged message is there")
    with dev(folder) as running:
        asyncio.run(check_again(running.namesrv))
        say("Stop it with SIGTERM")
        code = running.end(signal.SIGTERM)
        if code:
            raise Failed(f"roquet dev ended with {code}")
        click.echo("It ended with 0: everything is on disk.")
    say("Look into the store without a broker")
    roquet("store", "info", store)
    roquet("store", "dump", store, "--topic", TOPIC, "--limit", "2")
    roquet("store", "verify", store)


def main() -> None:
    """Run the demo in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="roquet-demo-") as name:
        try:
            demo(Path(name))
        except (Failed, RoquetError) as error:
            click.echo(f"The demo failed: {error}", err=True)
            sys.exit(1)
    say("Done: sent, pulled, killed, recovered, stopped, verified. The folder is removed again.")


if __name__ == "__main__":
    main()
