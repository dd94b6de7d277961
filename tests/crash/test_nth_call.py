"""One file call fails, for every call in the life of a store: open, write, flush, delete, close.

After each: errors are results or ``StoreError``, nothing acknowledged is lost, the store opens
again, no descriptor is left open, and a failed sync of running data is fatal.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.testing.files import FaultyFiles
from tests.campaign import sampled
from tests.crash import harness
from tests.crash.harness import ASYNC, SYNC, Driver, Ledger, Sent, small_config

ROUNDS = int(os.environ.get("ROQUET_CRASH_ROUNDS", "1"))
CHUNKS = 8
SHORTAGE_CHUNKS = 3

CONFIGS: dict[str, MessageStoreConfig] = {
    "sync": small_config(SYNC, segment_bytes=1 << 13, index_entries=12, reserved_hours=1),
    "async-ext": small_config(ASYNC, segment_bytes=1 << 13, index_entries=12, ext=True),
    "async-pool": small_config(ASYNC, segment_bytes=1 << 13, index_entries=12, pool=True),
}


RUNNING = {"put", "burst", "batch", "flush", "logics"}


class Life:
    """The whole life of a small store; every step may meet the fault."""

    def __init__(self, root: Path, config: MessageStoreConfig, files: FaultyFiles) -> None:
        self.root = root
        self.files = files
        self.clock = ManualClock()
        self.rng = random.Random(7)
        self.driver = Driver(root, config, files, self.clock)
        self.is_open = False
        self.errors: list[StoreError] = []

    def run(self) -> None:
        self.step("open", self.open)
        for _ in range(2):
            self.step("put", self.put)
            self.step("flush", self.flush)
            self.step("burst", self.burst)
            self.step("batch", self.batch)
            self.step("flush", self.flush)
            self.step("logics", self.logics)
            self.step("housekeeping", self.housekeeping)
        self.step("read", self.read)
        self.step("close", self.close)
        self.step("open", self.open)
        self.step("put", self.put)
        self.step("kill", self.kill)
        self.step("open", self.open)
        self.step("put", self.put)
        self.step("close", self.close)

    def step(self, name: str, action: Callable[[], None]) -> None:
        if not self.is_open and name not in {"open", "close"}:
            return
        has_failed = self.files.failed is not None
        try:
            action()
        except StoreError as error:
            self.errors.append(error)
        failed = self.files.failed
        if not has_failed and failed is not None and failed.name == "data_sync":
            is_new_file = failed.subject.isdecimal() and name in {"put", "burst", "batch"}
            assert self.driver.fatal or is_new_file or name not in RUNNING, f"{failed} in {name}"
        if self.driver.fatal and self.is_open:
            acked = sum(sent.acked for sent in self.driver.ledger.sent)
            self.put_some()
            self.driver.store.flusher._flush_round()
            assert sum(s.acked for s in self.driver.ledger.sent) == acked, "acked after a failure"

    def open(self) -> None:
        try:
            self.driver.open(self.root, self.files)
        except StoreError:
            self.driver.store.shutdown()
            raise
        self.driver.adopt()
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        self.driver.store.shutdown()
        if self.driver.fatal:
            assert (self.root / "abort").exists(), "a store that failed looks cleanly closed"
            self.driver.fatal.clear()

    def kill(self) -> None:
        self.is_open = False
        self.driver.abandon()

    def message(self) -> Sent:
        """Two queues and few sizes, so that a short life still rolls every kind of file."""
        entry = self.driver.ledger.make(self.rng)
        entry.topic = "Orders"
        entry.body = entry.body[: 1200 if self.rng.random() < 0.5 else 20]
        return entry

    def put_some(self) -> None:
        self.driver.put([self.message() for _ in range(6)])

    def put(self) -> None:
        self.put_some()
        self.clock.advance(5)

    def burst(self) -> None:
        self.driver.put_burst([self.message() for _ in range(6)])

    def batch(self) -> None:
        first = self.message()
        others = [self.message() for _ in range(2)]
        for other in others:
            other.topic, other.queue_id = first.key
        self.driver.put_batch([first, *others])

    def flush(self) -> None:
        self.clock.advance(10_001)
        self.driver.flush_log()

    def logics(self) -> None:
        self.clock.advance(60_001)
        self.driver.flush_logics()

    def read(self) -> None:
        harness.read_queue(self.driver.store, ("Orders", 0), may_expire=True)
        self.driver.store.reader.query_message("Orders", "key1", 10, 0, 1 << 60)
        self.driver.store.reader.offset_by_time("Orders", 0, self.clock.now_ms())

    def housekeeping(self) -> None:
        self.clock.advance(10_001)
        for path in (self.root / "commitlog").iterdir():
            os.utime(path, (self.clock.now_ms() / 1000 - 3600 * self.rng.randrange(2),) * 2)
        self.driver.housekeeping()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log records with tracebacks would keep the objects alive whose descriptors are counted."""
    logging.disable(logging.CRITICAL)
    gc.freeze()  # each life ends with a collection, which need not look at all that was before
    yield
    gc.unfreeze()
    logging.disable(logging.NOTSET)


def live(root: Path, config: MessageStoreConfig, files: FaultyFiles) -> Life:
    life = Life(root, config, files)
    life.run()
    return life


def check_after(life: Life) -> None:
    """What must hold whatever failed."""
    life.files.heal()
    if life.is_open:
        life.close()
    acked = [sent for sent in life.driver.ledger.sent if sent.acked]
    ledger = Ledger(life.driver.ledger.sent)
    ledger.sure = life.driver.ledger.sure
    assert acked
    kept = harness.recover(life.root, life.driver.config, life.clock, ledger)
    assert kept >= ledger.sure


def count_calls(tmp_path: Path, config: MessageStoreConfig, error: int) -> int:
    files = FaultyFiles(error=error)
    life = live(tmp_path / "whole", config, files)
    assert not life.errors
    assert not life.driver.fatal
    check_after(life)
    return len(files.calls)


@pytest.mark.parametrize("chunk", sampled(range(CHUNKS)))
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("name", CONFIGS)
def test_any_single_call_may_fail(name: str, error: int, chunk: int, tmp_path: Path) -> None:
    fail_calls(tmp_path, CONFIGS[name], error, (chunk, CHUNKS), check_after)


@pytest.mark.parametrize("chunk", range(SHORTAGE_CHUNKS))
@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOMEM], ids=["EMFILE", "ENOMEM"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_shortage_at_any_single_call_is_survived(
    name: str, error: int, chunk: int, tmp_path: Path
) -> None:
    def check(life: Life) -> None:
        assert not life.driver.fatal, "a shortage was taken for a failed disk"
        assert all(failure.retriable for failure in life.errors)
        check_after(life)

    fail_calls(tmp_path, CONFIGS[name], error, (chunk, SHORTAGE_CHUNKS), check)


def fail_calls(
    tmp_path: Path,
    config: MessageStoreConfig,
    error: int,
    share: tuple[int, int],
    check: Callable[[Life], None],
) -> None:
    """Live once for each call of a share, the k-th of every n, with that call failing."""
    chunk, chunks = share
    total = count_calls(tmp_path, config, error)
    assert total > 100
    for number in range(chunk + 1, total + 1, chunks):
        root = tmp_path / f"life{number}"
        files = FaultyFiles(fail_at=number, error=error)
        try:
            life = live(root, config, files)
            check(life)
            del life
            gc.collect()
            assert not files._paths, "descriptors were left open"
        except BaseException as failure:
            failure.add_note(f"call {number} of {total} failed with {errno.errorcode[error]}")
            failure.add_note(f"it was {files.failed}")
            raise
        shutil.rmtree(root)
