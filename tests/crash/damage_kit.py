"""Stores of messages of one size, to be damaged at a known place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.testing.files import QuickFiles
from tests.crash.harness import Driver, Ledger, Sent

SEGMENT = 1 << 14


def plain(ledger: Ledger, size: int = 200, queue_id: int = 0, *, keys: bool = True) -> Sent:
    """A message of exactly one size in exactly one queue."""
    ledger.numbers += 1
    number = f"{ledger.numbers:08d}"
    properties = {"KEYS": f"key{number}"} if keys else {}
    return Sent("Orders", queue_id, f"{number}:".encode() + b"x" * size, properties)


def driver_for(root: Path, config: MessageStoreConfig) -> Iterator[Driver]:
    files = QuickFiles()
    driver = Driver(root, config, files, ManualClock())
    driver.open(root, files)
    yield driver
    driver.abandon()


def send(driver: Driver, count: int, *, size: int = 200, queues: int = 1) -> list[Sent]:
    """Send and flush; returns what was sent."""
    entries = [plain(driver.ledger, size, number % queues) for number in range(count)]
    driver.put(entries)
    driver.store.flusher.flush_all()
    driver.note_safe()
    return entries


def flip(path: Path, position: int) -> None:
    """Change one bit."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1]))


def start_of(driver: Driver, number: int) -> int:
    """Where the record of the message with that number (from 0) starts."""
    return driver.ledger.sent[number - 1].end_offset if number else 0
