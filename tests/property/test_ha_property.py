"""Master and slave over a line that cuts, splits and breaks: a slave never leaves its master."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.errors import StoreError
from roquet.ha.in_sync import count_replicas
from roquet.ha.master_side import MasterSide
from roquet.ha.slave_side import SlaveSide
from tests.campaign import examples
from tests.unit.ha.ha_kit import CONFIG, SECOND, MemoryLog

KINDS = {
    "append": 5, "send": 8, "to slave": 12, "to master": 12, "wait": 2, "break": 1, "lose": 1,
}  # fmt: skip
SIZES = {
    "append": 700, "send": 1200, "to slave": 900, "to master": 24, "wait": 12, "break": 1,
    "lose": 500,
}  # fmt: skip
STEPS = 300


def steps_of(seed: int, *, loses: bool) -> Iterator[tuple[str, int]]:
    """What happens, one after the other, and how much of it."""
    rng = random.Random(seed)
    kinds = {kind: weight for kind, weight in KINDS.items() if loses or kind != "lose"}
    for kind in rng.choices(list(kinds), list(kinds.values()), k=STEPS):
        yield kind, rng.randint(1, SIZES[kind])


OVERLAP = 90


class Line:
    """Two logs and the connection between them, if there is one."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ns = 0
        self.master, self.slave = MemoryLog(), MemoryLog()
        self.acked = 0
        self.is_parted = False
        self.connect()

    def connect(self) -> None:
        end = self.slave.max_offset
        start = max(end - OVERLAP, 1) if end else 0
        self.master_side = MasterSide(self.master, CONFIG, self.now_ns)
        overlap = self.slave.tail(start) if end else b""
        self.slave_side = SlaveSide(self.slave, end, overlap, CONFIG, self.now_ns)
        self.to_slave = b""
        self.to_master = self.slave_side.begin(self.now_ns)

    def do(self, kind: str, value: int) -> None:
        try:
            self._do(kind, value)
        except (StoreError, TimeoutError):
            self.connect()

    def _do(self, kind: str, value: int) -> None:
        if kind == "append":
            self.master.data += self.rng.randbytes(value)
        elif kind == "to slave":
            part, self.to_slave = self.to_slave[:value], self.to_slave[value:]
            self.to_master += self.slave_side.received(part, self.now_ns)
        elif kind == "to master":
            part, self.to_master = self.to_master[:value], self.to_master[value:]
            self.master_side.received(part, self.now_ns)
            self.note_acknowledged()
        elif kind == "send":
            self.to_slave += b"".join(self.master_side.frames(self.now_ns, value))
        elif kind == "wait":
            self.now_ns += value * SECOND
            self.to_slave += self.master_side.tick(self.now_ns)
            self.to_master += self.slave_side.tick(self.now_ns)
        elif kind == "break":
            self.connect()
        else:
            self.lose(value)

    def note_acknowledged(self) -> None:
        acks = [self.master_side.ack_offset]
        found = count_replicas(CONFIG, self.master.max_offset, acks)
        self.acked = max(self.acked, found.replicated_offset)

    def lose(self, size: int) -> None:
        """The master restarts without the end of its log, and with other bytes in its place."""
        kept = max(self.master.max_offset - size, 0)
        self.master.data[kept:] = bytes(255 - byte for byte in self.master.data[kept:])
        self.is_parted = self.is_parted or kept < self.slave.max_offset
        self.acked = min(self.acked, kept)
        self.connect()

    def slave_part_of(self, log: MemoryLog) -> bytearray:
        """A log from where the slave's begins to where it ends; an empty slave may begin late."""
        return log.data[self.slave.min_offset : self.slave.max_offset]

    def check(self) -> None:
        if not self.is_parted:
            assert self.slave_part_of(self.master) == self.slave.data
        assert self.acked <= self.slave.max_offset


@settings(max_examples=examples(400))
@given(st.integers(0, 1 << 32))
def test_a_slave_holds_only_its_masters_bytes_and_all_it_acknowledged(seed: int) -> None:
    line = Line(seed)
    for kind, value in steps_of(seed, loses=True):
        end = line.slave.max_offset
        line.do(kind, value)
        line.check()
        if line.is_parted and line.slave.max_offset > end > 0:
            # It may only go on if what it compared was the same.
            start = max(end - OVERLAP, 1) - line.slave.min_offset
            assert line.slave.data[start:] == line.slave_part_of(line.master)[start:]


@settings(max_examples=examples(100))
@given(st.integers(0, 1 << 32), st.integers(1, 2000))
def test_logs_converge_after_broken_connections(seed: int, step: int) -> None:
    line = Line(seed)
    for kind, value in steps_of(seed, loses=False):
        line.do(kind, value)
        line.check()
    line.do("append", 7)
    line.connect()
    while line.acked < line.master.max_offset:
        for kind in ("to master", "send", "to slave"):
            line.do(kind, step)
    assert line.slave.max_offset == line.master.max_offset
    assert line.slave.data == line.slave_part_of(line.master)
