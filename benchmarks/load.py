"""The load generator, and a small peer for what it cannot do.

Owns building and running ``benchmarks/loadgen`` (Go), which measures any RocketMQ-compatible broker
over the wire, and :class:`Peer`, a blocking connection that stores single messages.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import FrameDecoder

LOADGEN = Path(__file__).parent / "loadgen"
RUN_MARGIN_S = 60
READ_BYTES = 1 << 18
PERCENTILES = ("p50", "p99")


class BenchmarkError(Exception):
    """Something is missing on the machine, or a broker refused; the message says what."""


@dataclass(frozen=True)
class Result:
    """The result of one run of the load generator.

    Attributes:
        values: Its numbers by their names: ``msgs_per_s``, ``p99_us``, ``failed`` and so on.
        first_failure: The first error response; empty if there was none.
    """

    values: dict[str, float]
    first_failure: str


def describe(values: dict[str, float]) -> str:
    """One result in a few words."""
    words = [
        f"{values['msgs_per_s']:,.0f} messages/s",
        f"{values.get('broker_cpu_us_per_msg', 0):.1f} us CPU",
        *(
            f"{name} {values[f'{name}_us']:,.0f} us"
            for name in PERCENTILES
            if f"{name}_us" in values
        ),
        f"{values.get('broker_anon_MB', 0):,.0f} MB",
    ]
    if values["failed"]:
        words.append(f"{values['failed']:,.0f} refused")
    return ", ".join(words)


def build_loadgen(folder: Path) -> Path:
    """Build the load generator, and return the program."""
    go = shutil.which("go")
    if go is None:
        raise BenchmarkError("Go is missing; the load generator is built with it")
    program = folder / "loadgen-program"
    done = subprocess.run(
        [go, "build", "-o", str(program), "."],
        cwd=LOADGEN,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"the load generator does not build:\n{done.stderr}")
    return program


def run_loadgen(
    program: Path, address: str, pid: int, arguments: Iterable[str], *, seconds: float, warm: float
) -> Result:
    """Run the load generator against a broker.

    Args:
        program: What :func:`build_loadgen` made.
        address: Where the broker listens.
        pid: The broker's process, whose CPU time and memory are read.
        arguments: Which load.
        seconds: How long is measured.
        warm: How long the load runs before.
    """
    command = [
        str(program),
        *("-addr", address, "-pid", str(pid), "-seconds", str(seconds), "-warm", str(warm)),
        *arguments,
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=seconds + warm + RUN_MARGIN_S,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkError(f"{' '.join(command)} failed:\n{done.stderr}")
    values = json.loads(done.stdout)
    # A percentile without values is -1.
    numbers = {
        key: float(value)
        for key, value in values.items()
        if not isinstance(value, str) and value >= 0
    }
    failures = [line for line in done.stderr.splitlines() if line]
    return Result(numbers, failures[0] if failures else "")


class Peer:
    """A blocking connection to a broker.

    Args:
        address: Where the broker listens.
        timeout_s: How long connecting or one response may take.
    """

    def __init__(self, address: str, *, timeout_s: float = 30.0) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._decoder = FrameDecoder()

    def send(
        self,
        topic: str,
        queue_id: int,
        *,
        opaque: int = 0,
        properties: str = "",
        body: bytes = b"hello",
    ) -> None:
        """Send one message, without waiting for the response."""
        fields = {
            "a": "bench_group",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue_id),
            "f": "0",
            "g": str(time.time_ns() // 1_000_000),
            "h": "0",
            "i": f"UNIQ_KEY\x017F0000010B9F18B4AAC2{opaque:012X}\x02WAIT\x01true\x02{properties}",
            "j": "0",
            "k": "false",
            "m": "false",
        }
        self.request(RequestCode.SEND_MESSAGE_V2, fields, opaque=opaque, body=body)

    def request(
        self, code: int, fields: dict[str, str], *, opaque: int = 0, body: bytes = b""
    ) -> None:
        """Send a request, without waiting for the response."""
        request = RemotingCommand(
            code=code, version=493, opaque=opaque, ext_fields=fields, body=body
        )
        self._socket.sendall(encode_command(request))

    def answer(self) -> RemotingCommand:
        """The next response."""
        while (frame := self._decoder.next_frame()) is None:
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._decoder.feed(data)
        return decode_command(frame)

    def drain(self) -> None:
        """Wait for incoming bytes, and discard them."""
        if not self._socket.recv(READ_BYTES):
            raise ConnectionError("the broker closed the connection")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fill_queues(address: str, topics: Iterable[str], *, queues: int, window: int = 100) -> int:
    """Store one message in every queue of every topic, and return their number.

    A message that is refused because the broker is busy is retried.

    Raises:
        BenchmarkError: The broker refused one for another reason.
    """
    places = [(topic, queue_id) for topic in topics for queue_id in range(queues)]
    left = list(range(len(places)))
    with Peer(address) as peer:
        while left:
            burst, left = left[:window], left[window:]
            for number in burst:
                peer.send(*places[number], opaque=number)
            for _ in burst:
                answer = peer.answer()
                if answer.code == ResponseCode.SYSTEM_BUSY:
                    left.append(answer.opaque)
                elif answer.code != ResponseCode.SUCCESS:
                    raise BenchmarkError(f"a message was refused: {answer.code} {answer.remark}")
    return len(places)


@contextmanager
def idle_connections(address: str, count: int) -> Iterator[None]:
    """Hold idle connections open."""
    peers: list[Peer] = []
    try:
        for _ in range(count):
            peers.append(Peer(address))  # noqa: PERF401  those made so far are closed on an error
        yield
    finally:
        for peer in peers:
            peer.close()
