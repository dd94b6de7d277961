"""The replication between two Java brokers, replayed into both sides of ours."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from roquet.format.ha_frames import ReportDecoder, TransferDecoder
from roquet.ha.master_side import MasterSide
from roquet.ha.slave_side import SlaveSide
from roquet.store.config import MessageStoreConfig

DATA = Path(__file__).parent / "data"
MASTER = (DATA / "store-ha-master/commitlog/00000000000000000000").read_bytes()
SLAVE = (DATA / "store-ha-slave/commitlog/00000000000000000000").read_bytes()
CONFIG = MessageStoreConfig(commit_log_file_bytes=len(MASTER))


class Growing:
    """The master's log as it was at some moment, and a slave's, in memory."""

    def __init__(self) -> None:
        self.min_offset = 0
        self.max_offset = 0
        self.data = bytearray()

    def data_from(self, physical_offset: int, size_bytes: int) -> memoryview | None:
        return memoryview(MASTER)[physical_offset : self.max_offset][:size_bytes] or None

    @property
    def safe_offset(self) -> int:
        return len(self.data)

    def append(self, physical_offset: int, data: memoryview) -> None:
        assert physical_offset == len(self.data)
        self.data += data


def recorded() -> list[tuple[int, str, bytes]]:
    lines = (DATA / "wire/ha.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [
        (round(each["ms"] * 1_000_000), each["dir"], base64.b64decode(each["raw"]))
        for each in found
        if each["server"] == "ha"
    ]


def test_our_master_sends_the_same_bytes_as_javas() -> None:
    """Given the slave's reports, and heartbeats when Java's master was idle."""
    log, sent = Growing(), b""
    frames = recorded()
    side = MasterSide(log, CONFIG, frames[0][0])
    for now_ns, direction, data in frames:
        if direction == "request-side":
            side.received(data, now_ns)
            continue
        if len(data) != 12:
            sent += data
            log.max_offset += len(data)
            made = b"".join(side.frames(now_ns, 1 << 20))
        elif data[8:] == bytes(4):
            sent = data
            made = side.tick(now_ns)
        else:
            sent = data
            continue
        assert made == sent
    assert side.ack_offset == log.max_offset == 0x6AA3


def test_our_slave_stores_and_reports_the_same_as_javas() -> None:
    log = Growing()
    frames = recorded()
    side = SlaveSide(log, 0, b"", CONFIG, frames[0][0])
    made = side.begin(frames[0][0])
    for now_ns, direction, data in frames:
        if direction == "server-side":
            made += side.received(data, now_ns)
            continue
        if not made:
            made = side.tick(now_ns + CONFIG.ha_heartbeat_interval_ms * 1_000_000)
        assert made == data
        made = b""
    assert bytes(log.data) == SLAVE[: len(log.data)] == MASTER[: len(log.data)]


def test_decoders_accept_any_split() -> None:
    frames = recorded()
    reports = b"".join(data for _, direction, data in frames if direction == "request-side")
    decoder = ReportDecoder()
    offsets = [offset for byte in reports for offset in decoder.feed(bytes([byte]))]
    assert offsets == list(ReportDecoder().feed(reports))
    assert offsets == sorted(offsets)
    transfers = b"".join(data for _, direction, data in frames if direction == "server-side")
    whole = b"".join(part for _, part in TransferDecoder().feed(transfers))
    assert whole == MASTER[: len(whole)]
