"""A plain copy of a part of a log over a socket: what replication is compared with.

Owns the copy: one thread reads the segments' files and sends them, another one receives them and
writes one file. Nothing is synced, checked or acknowledged.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 256 << 10
CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Part:
    """A part of a file."""

    path: Path
    first: int
    end: int


def parts_of(log: Path, first_offset: int, end_offset: int) -> list[Part]:
    """The files of a log from one offset to another; each is named after its first one.

    Args:
        log: The folder ``commitlog``.
        first_offset: The first byte.
        end_offset: Behind the last byte.
    """
    parts: list[Part] = []
    for path in sorted(log.glob("[0-9]*")):
        begins = int(path.name)
        first = max(first_offset - begins, 0)
        end = min(end_offset - begins, path.stat().st_size)
        if first < end:
            parts.append(Part(path, first, end))
    return parts


def copy(parts: Sequence[Part], target: Path) -> float:
    """Copy over a connection on loopback to a new file; return how many seconds it takes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(CONNECT_TIMEOUT_S)
        sender = socket.create_connection(server.getsockname(), timeout=CONNECT_TIMEOUT_S)
        receiver, _ = server.accept()
    sender.settimeout(None)
    return copy_between(sender, receiver, parts, target)


def copy_between(
    sender: socket.socket, receiver: socket.socket, parts: Sequence[Part], target: Path
) -> float:
    """The same over connected sockets, which are closed."""
    with ThreadPoolExecutor(1) as pool, receiver:
        begin = time.monotonic()
        received = pool.submit(_receive, receiver, target)
        with sender:
            _send(sender, parts)
        received.result()
        return time.monotonic() - begin


def _send(sender: socket.socket, parts: Sequence[Part]) -> None:
    block = memoryview(bytearray(BLOCK_BYTES))
    for part in parts:
        with part.path.open("rb", buffering=0) as file:
            file.seek(part.first)
            left = part.end - part.first
            while left:
                count = file.readinto(block[:left])
                if not count:
                    raise EOFError(f"{part.path} became shorter")
                sender.sendall(block[:count])
                left -= count


def _receive(receiver: socket.socket, target: Path) -> None:
    block = memoryview(bytearray(BLOCK_BYTES))
    with target.open("xb", buffering=0) as file:
        while count := receiver.recv_into(block):
            written = 0
            while written < count:
                written += file.write(block[written:count])
