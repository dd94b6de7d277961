"""The healthy client: one request every few milliseconds, and how long each response took.

    python -m benchmarks.attacks.healthy ADDRESS send|route|poll

Runs in a process of its own, so that neither the attacker's interpreter nor its memory disturbs
it. It prints ``ready``, works until its standard input ends, then prints one JSON object. A request
is due at a fixed time, whether or not the last one has completed, and its latency counts from then:
a stall of a second shows in every request that should have been sent during it, not in one.

``send`` stores numbered messages; ``poll`` does that with a long poll waiting for each, and
measures its wake-up; ``route`` queries a name server. Acknowledged messages are read back at the
end, and those that are missing or differ are counted.
"""

from __future__ import annotations

import json
import select
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Protocol

from benchmarks.load import Peer
from roquet.client.record_reader import read_message
from roquet.remoting.codes import RequestCode, ResponseCode

INTERVAL_S = 0.02
POLL_INTERVAL_S = 0.05
RESPONSE_TIMEOUT_S = 180.0
TOPIC = "Healthy"
QUEUE_ID = 0
POLL_SUSPEND_MS = 15_000


@dataclass
class Report:
    """The measurements of the client.

    Attributes:
        samples: When each request was due, by the monotonic clock, and its latency in seconds.
        refused: Requests that got an error response, by code.
        broken: Connections that were closed by the server.
        acknowledged: Messages that were acknowledged.
        lost: Acknowledged messages that were not there at the end, or differed.
    """

    samples: list[tuple[float, float]] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)
    broken: int = 0
    acknowledged: int = 0
    lost: int = 0


class Client(Protocol):
    """The repeated step of a healthy client.

    Attributes:
        interval_s: How often; longer than one step takes beside an attack, so that what is
            measured is the server's delay, not a queue before the client.
    """

    interval_s: float

    def step(self, number: int) -> int:
        """Do the work once, and return the response code."""

    def lost(self) -> tuple[int, int]:
        """How many messages were acknowledged, and how many of those are missing."""

    def connect(self) -> None:
        """Open its connections, again if need be."""

    def close(self) -> None:
        """Close its connections."""


class Sender:
    """Stores one numbered message per step."""

    interval_s = INTERVAL_S

    def __init__(self, address: str) -> None:
        self._address = address
        self._stored: dict[int, bytes] = {}
        self.connect()

    def connect(self) -> None:
        """Open the connection."""
        self._peer = Peer(self._address, timeout_s=RESPONSE_TIMEOUT_S)

    def step(self, number: int) -> int:
        """Store a message."""
        body = b"%020d" % number
        self._peer.send(TOPIC, QUEUE_ID, opaque=number, body=body)
        response = self._peer.answer()
        if response.code == ResponseCode.SUCCESS:
            self._stored[int((response.ext_fields or {})["queueOffset"])] = body
        return response.code

    def lost(self) -> tuple[int, int]:
        """Read everything back."""
        found: dict[int, bytes] = {}
        offset = 0
        with Peer(self._address, timeout_s=RESPONSE_TIMEOUT_S) as peer:
            while offset <= max(self._stored, default=-1):
                peer.request(RequestCode.PULL_MESSAGE, pull_fields(offset))
                response = peer.answer()
                if response.code != ResponseCode.SUCCESS:
                    break
                position = 0
                while position < len(response.body):
                    message = read_message(response.body, position)
                    found[message.queue_offset] = message.body
                    position += int.from_bytes(response.body[position : position + 4], "big")
                offset = int((response.ext_fields or {})["nextBeginOffset"])
        missing = sum(found.get(place) != body for place, body in self._stored.items())
        return len(self._stored), missing

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()


class Poller(Sender):
    """Waits with a long poll for each message that it stores on another connection."""

    interval_s = POLL_INTERVAL_S

    def __init__(self, address: str) -> None:
        self._next_offset = 0
        super().__init__(address)

    def connect(self) -> None:
        """Open both connections."""
        super().connect()
        self._consumer = Peer(self._address, timeout_s=RESPONSE_TIMEOUT_S)

    def step(self, number: int) -> int:
        """Pull the next message, store it, and wait for both responses."""
        self._consumer.request(
            RequestCode.PULL_MESSAGE, pull_fields(self._next_offset, suspend=True)
        )
        code = super().step(number)
        response = self._consumer.answer()
        if response.code == ResponseCode.SUCCESS:
            self._next_offset = int((response.ext_fields or {})["nextBeginOffset"])
        return code or response.code

    def close(self) -> None:
        """Close both connections."""
        super().close()
        self._consumer.close()


class RouteReader:
    """Requests a route from a name server."""

    interval_s = INTERVAL_S

    def __init__(self, address: str) -> None:
        self._address = address
        self.connect()

    def connect(self) -> None:
        """Open the connection."""
        self._peer = Peer(self._address, timeout_s=RESPONSE_TIMEOUT_S)

    def step(self, number: int) -> int:
        """Request a route; an unknown topic gets a response too."""
        fields = {"topic": "TBW102"}
        self._peer.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, opaque=number)
        code = self._peer.answer().code
        return 0 if code == ResponseCode.TOPIC_NOT_EXIST else code

    def lost(self) -> tuple[int, int]:
        """A name server acknowledges nothing."""
        return 0, 0

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()


KINDS: dict[str, type[Sender | Poller | RouteReader]] = {
    "send": Sender,
    "poll": Poller,
    "route": RouteReader,
}


def pull_fields(offset: int, *, suspend: bool = False) -> dict[str, str]:
    """The ext fields of a pull of the healthy queue."""
    return {
        "consumerGroup": "healthy_group",
        "topic": TOPIC,
        "queueId": str(QUEUE_ID),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if suspend else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(POLL_SUSPEND_MS if suspend else 0),
        "subscription": "*",
        "subVersion": "0",
    }


def work(address: str, kind: str) -> Report:
    """Work until standard input ends."""
    report = Report()
    client: Client = KINDS[kind](address)
    client.step(0)  # creates the topic
    print("ready", flush=True)
    due = time.monotonic()
    number = 0
    while True:
        due += client.interval_s
        wait = due - time.monotonic()
        if select.select([sys.stdin], [], [], max(wait, 0))[0]:
            break
        number += 1
        try:
            code = client.step(number)
        except OSError:
            report.broken += 1
            client.close()
            client.connect()
            code = 0
        if code:
            report.refused[code] = report.refused.get(code, 0) + 1
        report.samples.append((due, time.monotonic() - due))
    report.acknowledged, report.lost = client.lost()
    client.close()
    return report


if __name__ == "__main__":
    print(json.dumps(asdict(work(sys.argv[1], sys.argv[2]))))
