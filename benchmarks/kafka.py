"""Apache Kafka as a further peer: a KRaft broker on loopback, and Kafka's own load programs.

A row's work is done in Kafka's way: sends without batching where RocketMQ sends single messages,
batches of about 32 messages, and large fetches. All sends are acknowledged after the broker has
appended them (``acks=all`` with one replica); with SYNC_FLUSH after they are on disk.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.guests import result, watched
from benchmarks.lab import Lab
from benchmarks.load import RUN_MARGIN_S, BenchmarkError
from benchmarks.rows import SYNC, Row
from benchmarks.sides import wait_listens
from tests.interop import javabuild
from tests.interop.javaprocess import JavaProcess
from tests.interop.process import find_free_port

PROJECT = Path(__file__).parent / "kafkaclient"
HEAP = ("-Xms1g", "-Xmx1g")
JVM = (
    *("-server", *HEAP, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
FORMAT, BROKER = "kafka.tools.StorageTool", "kafka.Kafka"
PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
CLUSTER_ID = "cm9xdWV0LWJlbmNobWFyaw"  # 16 bytes in base64

SINGLE = ("batch.size=0", "linger.ms=0")
BATCHED = ("batch.size=36864", "linger.ms=5")
LOADS = {
    "send-json": (1024, SINGLE),
    "sync-json": (1024, SINGLE),
    "batch-json": (1024, BATCHED),
    "body-100": (100, SINGLE),
    "body-16k": (16_384, SINGLE),
    "body-100k": (102_400, SINGLE),
}
FETCHED_BYTES = {"pull-json": 32 * 1100, "pull-256": 256 * 1100}

RECORDS_MIN, SYNC_RECORDS_MIN = 10_000, 2_000
STORED_RECORDS = 1_000_000
RATE_MIN = 100
TRIES = 4
CLIENT_START_S = 5
"""Kafka's program prints a rate every five seconds; the first one is that of a cold client."""


class Kafka:
    """Kafka, started when a row needs it and kept until the durability changes.

    Raises:
        BenchmarkError: Java or Maven is missing, or the jars are not available.
    """

    name = "Kafka"

    def __init__(self) -> None:
        try:
            self._toolkit = javabuild.build(PROJECT)
        except (javabuild.OracleMissingError, javabuild.OracleBuildError) as error:
            raise BenchmarkError(f"Kafka cannot be run: {error}") from error
        self._stack = ExitStack()
        self._server: JavaProcess | None = None
        self._is_sync = False
        self._address = ""
        self._folder = Path()

    def can(self, row: Row) -> bool:
        """Plain sends, batches, large bodies and pulls near the end."""
        return row.name in LOADS or row.name in FETCHED_BYTES

    def measure(self, lab: Lab, row: Row) -> dict[str, float]:
        """Do a row's work once."""
        server = self._running(lab, is_sync=row.settings == SYNC)
        lab.settle()
        if row.name in FETCHED_BYTES:
            return self._fetch(server, FETCHED_BYTES[row.name])
        size, options = LOADS[row.name]
        seconds, count = CLIENT_START_S + lab.lengths.load_s, self._least()
        values: dict[str, float] = {}
        for _ in range(TRIES):
            began_s = time.monotonic()
            with watched(server.pid, values):
                values.update(self._send(row.name, count, size, options))
            took_s = time.monotonic() - began_s
            if took_s >= seconds:
                break
            count = next_count(count, took_s, seconds)
        return values

    def _least(self) -> int:
        return SYNC_RECORDS_MIN if self._is_sync else RECORDS_MIN

    def _running(self, lab: Lab, *, is_sync: bool) -> JavaProcess:
        if self._server is not None and self._is_sync == is_sync:
            return self._server
        self.close()
        self._is_sync = is_sync
        folder = self._folder = self._stack.enter_context(lab.folder())
        port, controller_port = find_free_port(), find_free_port()
        self._address = f"127.0.0.1:{port}"
        config = folder / "server.properties"
        config.write_text(settings_text(folder, port, controller_port, is_sync=is_sync))
        self._run(FORMAT, ["format", "--cluster-id", CLUSTER_ID, "--config", str(config)], 0)
        self._server = self._stack.enter_context(
            JavaProcess(
                self._toolkit,
                "kafka",
                BROKER,
                arguments=[str(config)],
                folder=folder,
                jvm_options=JVM,
            )
        )
        wait_listens(self._server, self._address)
        count = self._least()
        warm_until_s = time.monotonic() + lab.lengths.warm_s
        while (began_s := time.monotonic()) < warm_until_s:
            self._send("Warm", count, 1024, BATCHED)
            count = next_count(count, time.monotonic() - began_s, lab.lengths.warm_s)
        return self._server

    def _send(self, topic: str, count: int, size: int, options: Sequence[str]) -> dict[str, float]:
        arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(size)]
        properties = [f"bootstrap.servers={self._address}", "acks=all", *options]
        text = self._run(
            PRODUCER,
            [*arguments, "--throughput", "-1", "--producer-props", *properties],
            count / RATE_MIN,
        )
        return result(sent_rate(text), count)

    def _fetch(self, server: JavaProcess, fetch_bytes: int) -> dict[str, float]:
        stored = "Stored"
        if not (self._folder / stored).exists():
            self._send(stored, STORED_RECORDS, 1024, BATCHED)
            (self._folder / stored).touch()
        arguments = [
            *("--bootstrap-server", self._address, "--topic", stored),
            *("--messages", str(STORED_RECORDS), "--fetch-size", str(fetch_bytes)),
        ]
        values: dict[str, float] = {}
        self._run(CONSUMER, arguments, RUN_MARGIN_S)
        with watched(server.pid, values):
            text = self._run(CONSUMER, arguments, RUN_MARGIN_S)
            values.update(result(*fetched_rate(text)))
        return values

    def _run(self, main_class: str, arguments: Sequence[str], seconds: float) -> str:
        try:
            done = subprocess.run(
                [self._toolkit.java, *HEAP, "-cp", self._toolkit.classpath, main_class, *arguments],
                capture_output=True,
                text=True,
                timeout=seconds + RUN_MARGIN_S,
                check=False,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"{main_class} took more than {error.timeout:.0f} s") from None
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
            raise BenchmarkError(f"{main_class} failed:\n{tail}")
        return done.stdout

    def close(self) -> None:
        """Stop the broker."""
        self._server = None
        self._stack.close()
        self._stack = ExitStack()


def settings_text(folder: Path, port: int, controller_port: int, *, is_sync: bool) -> str:
    """The settings of a broker that is its own controller."""
    values: dict[str, str | int] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(folder / "data"),
        "num.partitions": 4,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        **({"log.flush.interval.messages": 1} if is_sync else {}),
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def next_count(count: int, took_s: float, wanted_s: float) -> int:
    """How many messages take about as long as is wanted; Kafka's program takes a number.

    A short run is mostly that of a cold client, so the next one may be much faster.

    Example:
        >>> next_count(10_000, 2, 10), next_count(10_000, 20, 10), next_count(10, 0.001, 10)
        (75000, 10000, 100)
    """
    return int(count * min(max(1.5 * wanted_s / took_s, 1), 10))


def sent_rate(text: str) -> float:
    """Messages per second of Kafka's producer program.

    It prints a line for every interval, and a last one for all of them. The first interval is that
    of a cold client; a run without another one counts as a whole.

    Example:
        >>> sent_rate("10 records sent, 99.5 records/sec (0.1 MB/sec), 1.0 ms avg latency, ...")
        99.5
    """
    *intervals, whole = re.findall(r"([\d.]+) records/sec", text) or [""]
    if not whole:
        raise BenchmarkError(f"Kafka's producer says no rate:\n{text[-500:]}")
    return statistics.median(map(float, intervals[1:] or [whole]))


def fetched_rate(text: str) -> tuple[float, float]:
    r"""Messages per second without the time of joining the group, and the number of messages.

    Example:
        >>> fetched_rate("start.time, end.time\n10:00, 10:01, 976.6, 162.8, 1000000, 166666.7, "
        ...              "500, 5500, 177.6, 181818.2\n")
        (181818.2, 1000000.0)
    """
    columns = [each.strip() for each in text.strip().splitlines()[-1].split(",")]
    try:
        return float(columns[9]), float(columns[4])
    except (IndexError, ValueError):
        raise BenchmarkError(f"Kafka's consumer says no rate:\n{text[-500:]}") from None
