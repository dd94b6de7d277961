"""Speed of the store against what the machine can do, both sides in the same run.

Run with ``make bench`` or ``python -m benchmarks.store``. Each measurement alternates its two
sides, repeats, and compares the best round of each, the one least disturbed by other processes;
absolute numbers differ from machine to machine and from minute to minute. ``--json FILE`` writes
one object for programs.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from roquet.format.commit_log import encode_record
from roquet.model.host import LOOPBACK
from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore

BODY_BYTES = 1024
BURST = 64
QUEUES = 8
TOPIC = "BenchmarkTopic"


def make_messages(count: int) -> list[BrokerMessage]:
    """Messages as a broker passes them on: 1 KiB, a tag, a key, a unique key."""
    body = bytes(range(256)) * (BODY_BYTES // 256)
    return [
        BrokerMessage(
            topic=TOPIC,
            queue_id=number % QUEUES,
            body=body,
            properties=encode_properties(
                {
                    "MSG_REGION": "DefaultRegion",
                    "UNIQ_KEY": f"7F0000010B9F18B4AAC2{number:012X}",
                    "CLUSTER": "DefaultCluster",
                    "TAGS": f"Tag{number % 4}",
                    "KEYS": f"order-{number}",
                    "WAIT": "true",
                    "TRACE_ON": "true",
                }
            ),
            born_timestamp_ms=1_700_000_000_000 + number,
        )
        for number in range(count)
    ]


def make_records(messages: list[BrokerMessage]) -> list[bytes]:
    """The very bytes the store writes for these messages."""
    host = LOOPBACK.pack()
    return [
        encode_record(
            topic=message.topic.encode(),
            body=message.body,
            properties=message.properties,
            queue_id=message.queue_id,
            flag=0,
            queue_offset=0,
            physical_offset=0,
            sys_flag=0,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=host,
            store_timestamp_ms=message.born_timestamp_ms,
            store_host=host,
        )
        for message in messages
    ]


def config(segment_bytes: int) -> MessageStoreConfig:
    """Upstream's settings with segments that suit the run."""
    return MessageStoreConfig(commit_log_file_bytes=segment_bytes, delete_when="04")


def bare_copy(root: Path, records: list[bytes], total_bytes: int, segment_bytes: int) -> float:
    """Seconds to copy records into mapped, allocated files, and nothing else."""
    root.mkdir(parents=True)
    done = 0
    took = 0.0
    number = 0
    while done < total_bytes:
        fd = os.open(root / f"{number:020d}", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(fd, 0, segment_bytes)
        mapping = mmap.mmap(fd, segment_bytes)
        position = 0
        count = len(records)
        index = 0
        began = time.perf_counter()
        while True:
            record = records[index]
            end = position + len(record)
            if end > segment_bytes or done >= total_bytes:
                break
            mapping[position:end] = record
            done += len(record)
            position = end
            index = index + 1 if index + 1 < count else 0
        took += time.perf_counter() - began
        mapping.close()
        os.close(fd)
        number += 1
    return took * total_bytes / done


def store_append(
    root: Path, messages: list[BrokerMessage], total_bytes: int, segment_bytes: int
) -> float:
    """Seconds to append and dispatch about as many bytes through the store."""
    store = DefaultMessageStore(root, config(segment_bytes))
    store.load()
    store.start()
    store.put_burst(messages[:BURST])
    start = store.commit_log.wrote_offset
    count = len(messages)
    index = 0
    began = time.perf_counter()
    while store.commit_log.wrote_offset - start < total_bytes:
        result = store.put_burst(messages[index : index + BURST])
        if result.refused:
            raise SystemExit(f"the store refused: {result.refused}")
        index = index + BURST if index + 2 * BURST <= count else 0
    took = time.perf_counter() - began
    done = store.commit_log.wrote_offset - start
    store.shutdown()
    return took * total_bytes / done


def crc_over(root: Path) -> float:
    """Seconds of zlib.crc32 over all segments, warm in memory."""
    took = 0.0
    for path in sorted((root / "commitlog").iterdir()):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            zlib.crc32(data)
            began = time.perf_counter()
            zlib.crc32(data)
            took += time.perf_counter() - began
    return took


def recover(root: Path, segment_bytes: int) -> float:
    """Seconds to open a store whose last exit was not clean and whose checkpoint is empty."""
    (root / "abort").write_bytes(b"0")
    (root / "checkpoint").unlink(missing_ok=True)
    store = DefaultMessageStore(root, config(segment_bytes))
    began = time.perf_counter()
    report = store.load()
    took = time.perf_counter() - began
    if report.clean_exit:
        raise SystemExit("the recovery was not an abnormal one")
    store.start()
    store.shutdown()
    return took


def anonymous_bytes() -> int:
    """Anonymous memory of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def append_memory(
    root: Path, messages: list[BrokerMessage], total_bytes: int, segment_bytes: int
) -> int:
    """The peak anonymous memory while appending that many bytes, with old segments deleted."""
    store = DefaultMessageStore(root, config(segment_bytes))
    store.load()
    store.start()
    highest = 0
    index = bursts = 0
    while store.commit_log.wrote_offset < total_bytes:
        store.put_burst(messages[index : index + BURST])
        index = index + BURST if index + 2 * BURST <= len(messages) else 0
        bursts += 1
        if bursts % 256 == 0:
            highest = max(highest, anonymous_bytes())
    highest = max(highest, anonymous_bytes())
    store.shutdown()
    return highest


def in_fresh_directory(base: Path, work: Callable[[Path], float]) -> float:
    """Run ``work`` on a directory of its own and remove it."""
    root = Path(tempfile.mkdtemp(dir=base))
    gc.collect()
    os.sync()  # pending writes of the other side must not slow this one down
    try:
        return work(root / "store")
    finally:
        shutil.rmtree(root, ignore_errors=True)


def measure_append(base: Path, total_bytes: int, rounds: int) -> dict[str, float]:
    """Append + dispatch against a bare copy of the same bytes."""
    segment_bytes = 1 << 30
    messages = make_messages(8192)
    records = make_records(messages)
    copies: list[float] = []
    stores: list[float] = []
    for _ in range(rounds):
        copies.append(
            in_fresh_directory(
                base, lambda root: bare_copy(root, records, total_bytes, segment_bytes)
            )
        )
        stores.append(
            in_fresh_directory(
                base, lambda root: store_append(root, messages, total_bytes, segment_bytes)
            )
        )
    copy_s, store_s = min(copies), min(stores)
    count = total_bytes / len(records[0])
    return {
        "bare_copy_mib_s": total_bytes / copy_s / (1 << 20),
        "store_mib_s": total_bytes / store_s / (1 << 20),
        "store_messages_s": count / store_s,
        "ratio": copy_s / store_s,
    }


def measure_recovery(base: Path, total_bytes: int, rounds: int) -> dict[str, float]:
    """Abnormal recovery of a log against zlib.crc32 over the same bytes."""
    segment_bytes = 1 << 28
    root = Path(tempfile.mkdtemp(dir=base)) / "store"
    try:
        store_append(root, make_messages(8192), total_bytes, segment_bytes)
        crcs: list[float] = []
        recoveries: list[float] = []
        for _ in range(rounds):
            crcs.append(crc_over(root))
            recoveries.append(recover(root, segment_bytes))
    finally:
        shutil.rmtree(root.parent, ignore_errors=True)
    crc_s, recovery_s = min(crcs), min(recoveries)
    return {
        "crc32_mib_s": total_bytes / crc_s / (1 << 20),
        "recovery_mib_s": total_bytes / recovery_s / (1 << 20),
        "ratio": crc_s / recovery_s,
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the requested measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["append", "recovery", "memory"], action="append")
    parser.add_argument("--mib", type=int, default=1024, help="bytes per measurement, in MiB")
    parser.add_argument("--memory-mib", type=int, default=5120)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=None, help="where to put the files")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write it for programs")
    options = parser.parse_args(arguments)
    base = Path(tempfile.mkdtemp(prefix="roquet-bench-", dir=options.dir))
    wanted = options.only or ["append", "recovery", "memory"]
    total_bytes = options.mib << 20
    report: dict[str, dict[str, float]] = {}
    try:
        if "append" in wanted:
            report["append"] = measure_append(base, total_bytes, options.rounds)
        if "recovery" in wanted:
            report["recovery"] = measure_recovery(base, total_bytes, options.rounds)
        if "memory" in wanted:
            messages = make_messages(8192)
            highest = in_fresh_directory(
                base,
                lambda root: append_memory(root, messages, options.memory_mib << 20, 1 << 30),
            )
            report["memory"] = {
                "appended_mib": options.memory_mib,
                "anonymous_mib_max": highest / (1 << 20),
            }
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if options.json is not None:
        options.json.write_text(json.dumps(report) + "\n")
    for name, values in report.items():
        sys.stdout.write(f"{name}\n")
        for key, value in values.items():
            sys.stdout.write(f"  {key:20} {value:12.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
