"""Tasks that reach clusters with TLS, accounts and namespaces; no Spark is started."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import trustme

from roquet.errors import RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.spark.broker import sink
from roquet.spark.broker.cluster import Cluster
from roquet.spark.broker.planning import QueueRange
from roquet.spark.broker.read_options import read_options
from roquet.spark.broker.reader import BrokerReader, RangePartition
from roquet.spark.broker.send import Outbox
from roquet.spark.broker.write_options import write_options
from roquet.spark.schema import struct_type
from roquet.testing.background import BackgroundBroker, background_broker
from tests.unit.client.client_kit import fake_server, route_of


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    # An error that leaves a task changes it; see roquet.spark.plain_errors.
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def write(broker: BackgroundBroker, bodies: list[bytes], **options: str) -> None:
    """What a task of the sink does, with options that travelled to it."""
    given = write_options({"namesrv": broker.namesrv, "topic": "Orders", **options})
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    sink._write(pickle.loads(pickle.dumps(given)), "task", iter([batch]))  # noqa: S301 - our own


def read(broker: BackgroundBroker, **options: str) -> list[tuple[str, bytes]]:
    """What the driver and the tasks of a batch do."""
    given = read_options({"namesrv": broker.namesrv, "subscribe": "Orders", **options})
    reader = BrokerReader(given, struct_type(["topic", "body"]))
    travelled: BrokerReader = pickle.loads(pickle.dumps(reader))  # noqa: S301 - our own
    found: list[tuple[str, bytes]] = []
    for partition in reader.partitions():
        for batch in travelled.read(partition):
            found += [(row["topic"], row["body"]) for row in batch.to_pylist()]
    return sorted(found)


def test_a_namespace_is_added_and_removed() -> None:
    with background_broker() as broker:
        write(broker, [b"theirs"])
        write(broker, [b"ours", b"too"], namespace="shop")
        assert read(broker, namespace="shop") == [("Orders", b"ours"), ("Orders", b"too")]
        assert read(broker) == [("Orders", b"theirs")]
        by_pattern = {"subscribe": "", "subscribePattern": "Ord.*", "namespace": "shop"}
        assert len(read(broker, **by_pattern)) == 2
        assert len(broker.messages("shop%Orders")) == 2


def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA)
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    server = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": tmp_path / "server.pem",
        "tls.server.keyPath": tmp_path / "server.pem",
    }
    secure = {"tls": "true", "tlsCaFile": str(tmp_path / "ca.pem")}
    with background_broker(server) as broker:
        write(broker, [b"hidden"], **secure)
        assert read(broker, **secure) == [("Orders", b"hidden")]
        with pytest.raises(RoquetError):
            read(broker, **{"fetchOffset.numRetries": "0"})
        with pytest.raises(RoquetError):
            write(broker, [b"in plain text"], retryTimeoutMs="1")


async def test_requests_are_signed() -> None:
    async with fake_server() as server:
        server.routes["Orders"] = route_of(("a", {0: server.address}))
        keys = {"accessKey": "shop", "secretKey": "12345678", "securityToken": "t"}
        options = read_options({"namesrv": server.address, "subscribe": "Orders", **keys})
        async with Cluster(options) as cluster:
            await cluster.queues()
        fields = server.fields[0]
    assert (fields["AccessKey"], fields["SecurityToken"]) == ("shop", "t")
    assert fields["Signature"]


def test_an_empty_part_gives_nothing() -> None:
    given = read_options({"namesrv": "127.0.0.1:1", "subscribe": "Orders"})
    reader = BrokerReader(given, struct_type(["topic"]))
    nothing = QueueRange(MessageQueue("Orders", "a", 0), 5, 5)
    assert list(reader.read(RangePartition(nothing))) == []


def test_nothing_is_in_flight_while_waiting_for_the_next_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may take long; a response that is not read would be lost."""
    made: list[Outbox] = []

    def recorded(*args: object, **named: object) -> Outbox:
        made.append(Outbox(*args, **named))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(sink, "Outbox", recorded)
    sent: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            yield pa.RecordBatch.from_pydict({"body": pa.array([b"%d" % number] * 600)})
            assert not made[0]._tasks
            sent.append(made[0].sent.rows)

    with background_broker() as broker:
        broker.create_topic("Orders", 2)
        given = {"namesrv": broker.namesrv, "topic": "Orders"}
        sink._write(write_options(given), "task", batches())
        assert sent == [512, 1_024, 1_536]
        assert made[0].sent.rows == len(broker.messages("Orders")) == 1_800


def test_slowly_read_rows_are_complete() -> None:
    with background_broker() as broker:
        broker.create_topic("Orders", 1)
        write(broker, [b"%d" % number for number in range(5_000)])
        options = read_options(
            {"namesrv": broker.namesrv, "subscribe": "Orders", "pullTimeoutMs": "50"}
        )
        reader = BrokerReader(options, struct_type(["queueOffset"]))
        (partition,) = reader.partitions()
        found: list[int] = []
        for batch in reader.read(partition):
            found += batch.column(0).to_pylist()
            if len(found) < 3_000:
                time.sleep(0.1)  # longer than a pull may take
        assert found == list(range(5_000))
