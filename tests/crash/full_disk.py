"""A process that fills a small file system, and continues when there is room again.

Started by the disk tests as ``python full_disk.py ROOT SCENARIO``; a mapped write into a hole would
end it by a signal, so it must not be the test process itself. Prints what it found as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from roquet.format.segment_files import file_name
from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from roquet.runtime.clock import ManualClock
from roquet.store.config import FlushDiskType, MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.queue_reader import ReadRequest
from roquet.store.results import GetMessageStatus, PutMessageResult

SEGMENT_BYTES = 1 << 18
BALLAST_BYTES = 3 << 19


def config_of() -> MessageStoreConfig:
    """The used share of the disk must not stop writes before the disk itself does."""
    return MessageStoreConfig(
        commit_log_file_bytes=SEGMENT_BYTES,
        consume_queue_file_bytes=12_000,
        index_slots=1000,
        index_entries=2000,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        disk_max_used_percent=100,
        disk_clean_forcibly_percent=100,
        disk_warning_percent=100,
    )


class Filler:
    """A store without threads on a small disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.sent = 0
        self.acked: list[tuple[int, str]] = []
        self.store = self.open()

    def open(self) -> DefaultMessageStore:
        store = DefaultMessageStore(self.root, config_of(), clock=self.clock)
        store.load()
        store.start(threads=False)
        return store

    def put(self, queue_id: int, size: int) -> bool:
        """Send one message; whether it was acknowledged."""
        self.sent += 1
        value = f"{self.sent:06d}"
        message = BrokerMessage(
            "Full",
            queue_id,
            value.encode() + b"x" * size,
            encode_properties({"KEYS": f"k{value}", "UNIQ_KEY": f"u{value}"}),
        )
        results: list[PutMessageResult] = []
        self.store.submit(message, results.append)
        self.store.finish_burst()
        self.store.flusher._flush_round()
        if results and results[0].is_ok:
            self.acked.append((queue_id, value))
            return True
        return False

    def fill(self, *, queues: int, size: int) -> int:
        """Send until refused ten times in a row; how many were acknowledged."""
        before = len(self.acked)
        refused = 0
        while refused < 10:
            refused = 0 if self.put(self.sent % queues, size) else refused + 1
        return len(self.acked) - before

    def housekeeping(self) -> None:
        """Let the store notice what has changed."""
        self.clock.advance(10_001)
        self.store.upkeep.housekeeping_round()

    def free_and_go_on(self, ballast: Path, *, queues: int, size: int) -> int:
        """Make room, let housekeeping notice, and send again."""
        ballast.unlink()
        self.housekeeping()
        return self.fill(queues=queues, size=size)

    def readable(self) -> int:
        """How many of the acknowledged messages a consumer finds."""
        found = 0
        for queue_id in {queue_id for queue_id, _ in self.acked}:
            offset = 0
            while True:
                result = self.store.reader.get_message(ReadRequest("Full", queue_id, offset, 32))
                if result.status is not GetMessageStatus.FOUND:
                    break
                found += result.message_count
                offset = result.next_begin_offset
        return found


def make_sparse(path: Path) -> None:
    """Turn the unwritten rest of a file into a hole, as a Java broker leaves it."""
    used = len(path.read_bytes().rstrip(b"\0"))
    os.truncate(path, used)
    os.truncate(path, SEGMENT_BYTES)


def leave_free(plug: Path, free_bytes: int) -> None:
    """Take nearly all room of a file system."""
    with plug.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"p" * 4096)
    os.truncate(plug, plug.stat().st_size - free_bytes)


def main() -> None:
    root, scenario = Path(sys.argv[1]), sys.argv[2]
    ballast = root.parent / "ballast"
    ballast.write_bytes(b"b" * BALLAST_BYTES)
    filler = Filler(root)
    queues, size = (200, 10) if scenario == "queues" else (2, 2000)
    if scenario == "sparse":
        filler.put(0, 100)
        filler.store.shutdown()
        make_sparse(root / "commitlog" / file_name(0))
        plug = root.parent / "plug"
        leave_free(plug, SEGMENT_BYTES // 4)
        filler.store = filler.open()
        filler.fill(queues=1, size=5000)
        plug.unlink()
        filler.housekeeping()
    first = filler.fill(queues=queues, size=size)
    readable_when_full = filler.readable()
    acked_when_full = len(filler.acked)
    second = filler.free_and_go_on(ballast, queues=queues, size=size)
    answer = {
        "first": first,
        "acked_when_full": acked_when_full,
        "readable_when_full": readable_when_full,
        "second": second,
        "acked": filler.acked,
        "sent": filler.sent,
    }
    filler.store.shutdown()
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
