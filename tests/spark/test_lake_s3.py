"""Lakes on a real S3 server: every job and every read, kills, and connections that are cut."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import roquet.spark
from roquet.client.options import ClientOptions
from roquet.errors import SparkError, SparkOptionError
from roquet.model.properties import encode_properties
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.compact import compact
from roquet.spark.jobs.follow import archive_topics
from roquet.spark.jobs.inputs import ALL, Wanted, read_log
from roquet.spark.jobs.lake import Lake, read_lake
from roquet.spark.jobs.tier import tier, tiered
from roquet.spark.jobs.verify import verify
from roquet.spark.lake.lake_options import read_lake_options
from roquet.spark.lake.planning import plan_lake
from roquet.spark.lake.reading import LakeReader
from roquet.spark.lake.source import lake_type
from roquet.spark.schema import COLUMNS, arrow_schema
from roquet.testing.fault_proxy import FaultProxy
from tests.interop import gobuild, javabuild
from tests.spark.archive_killed import BEFORE_MANIFEST
from tests.spark.conftest import QUICK_START, SOURCE
from tests.spark.s3_gateway import ACCESS, BUCKET, SECRET, Gateway, s3_gateway, variables
from tests.spark.stages import Stages, Writer, driver
from tests.spark.table_writer import COMMITTED, COMMITTING, WRITING
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.lake_kit import BROKER, GOLDEN, lake_rows, log_rows
from tests.unit.spark.log.kit import mixed_messages, write_store
from tests.unit.store.kit import message

pytestmark = pytest.mark.interop

RANGE_BYTES = 8 << 10
PATHS = os.pathsep.join([str(SOURCE), str(SOURCE.parent)])
COUNT = 60
ROUNDS = int(os.environ.get("ROQUET_TEST_LAKE_ROUNDS", "1"))
"""How many lakes have writers that are killed; a long campaign has 20."""

CUTS = ROUNDS
"""How many connections are cut."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in variables().items():
            patched.setenv(name, value)
        try:
            with s3_gateway(tmp_path_factory.mktemp("gateway")) as running:
                yield running
        except javabuild.OracleMissingError as error:
            if gobuild.is_required():
                pytest.fail(f"CI has Go, so the gateway must build: {error}")
            pytest.skip(f"No S3 server can be run here: {error}")


def with_secret(uri: str) -> str:
    """The URI with its credentials, for processes that do not have the variables."""
    return uri.replace("s3://", f"s3://{ACCESS}:{SECRET}@")


def run(store: Path, lake: str, wanted: Wanted = ALL) -> None:
    given = {"broker_name": BROKER, "range_bytes": RANGE_BYTES, "wanted": wanted}
    archive(HERE, str(store), lake, **given)  # type: ignore[arg-type]


def check(store: Path, lake: str, gateway: Gateway, folder: str) -> None:
    """The lake has every message once, and nothing is left of earlier runs."""
    assert lake_rows(gateway.folder / BUCKET / folder) == log_rows(store)
    report = verify(HERE, str(store), lake, broker_name=BROKER, check_bodies=True)
    assert report.findings == []
    assert Lake(lake).plan(BROKER) is None


# ------------------------------------------------------------------------------------ all reads


def test_all_jobs_and_reads(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_store(store, mixed_messages(COUNT), step_ms=1_200_000)
    lake = with_secret(gateway.uri("reads"))
    given = {"broker_name": BROKER, "range_bytes": RANGE_BYTES}
    report = archive(spark, str(store), lake, **given)  # type: ignore[arg-type]
    assert SECRET not in "".join(report.outputs)
    columns = [name for name in COLUMNS if name != "properties"]
    log = read_log(spark, str(store), brokerName=BROKER).orderBy("physicalOffset")
    rows = log.select("properties", *columns).collect()
    whole = read_lake(spark, lake).orderBy("physicalOffset")
    assert whole.select("properties", *columns).collect() == rows
    assert whole.columns == [*COLUMNS, "day"]

    with_key = next(row for row in rows if row.keys)
    word = with_key.keys.split()[0]
    assert read_lake(spark, lake, keys=[word]).count() == 1
    assert read_lake(spark, lake).where(f"msgId = '{with_key.msgId}'").count() == 1
    topic = read_lake(spark, lake, columns=["queueId"], wanted=Wanted(topics=["T1"]))
    assert topic.columns == ["queueId"]
    assert topic.count() == sum(row.topic == "T1" for row in rows)
    days = read_lake(spark, lake).select("day").distinct().count()
    assert days == len({row.storeTimestamp.date() for row in rows})

    both = tiered(spark, str(store), lake, broker_name=BROKER)
    assert both.orderBy("physicalOffset").select("properties", *columns).collect() == rows
    found = verify(spark, str(store), lake, broker_name=BROKER, check_bodies=True)
    assert (found.findings, found.numbers["messages"]) == ([], COUNT)
    assert not tier(spark, str(store), lake, broker_name=BROKER).findings
    # Nothing is renamed or copied on the way: there are no objects but those of the lake.
    assert not [name for name in gateway.objects("reads") if ".tmp" in name]


def test_compact(spark: SparkSession, gateway: Gateway, tmp_path: Path) -> None:
    messages = [
        message(body, topic="Prices", properties=encode_properties({"KEYS": f"p{number % 7}"}))
        for number, body in enumerate([b"%d" % number for number in range(50)])
    ]
    write_store(tmp_path / "store", messages, step_ms=1000)
    out = with_secret(gateway.uri("compact"))
    for is_overwrite in (False, True):
        report = compact(
            spark, str(tmp_path / "store"), wanted=Wanted(topics=["Prices"]), out=out,
            is_overwrite=is_overwrite,
        )  # fmt: skip
        assert report.numbers["values"] == 7
        names = gateway.objects("compact")
        values = {
            row["key"]: bytes(row["body"])
            for name in names
            if name.endswith(".parquet")
            for row in pq.read_table(gateway.folder / BUCKET / name).to_pylist()
        }
        assert values == {f"p{number % 7}": b"%d" % number for number in range(43, 50)}
        assert "compact/_SUCCESS" in names
    with pytest.raises(SparkOptionError, match="holds files already"):
        compact(spark, str(tmp_path / "store"), wanted=Wanted(topics=["Prices"]), out=out)


def test_a_stream_of_topics_is_refused(spark: SparkSession, gateway: Gateway) -> None:
    lake = with_secret(gateway.uri("stream"))
    with pytest.raises(SparkOptionError, match="Spark itself has no file system for s3://"):
        archive_topics(spark, ClientOptions(namesrv="127.0.0.1:1"), lake)


def test_a_delta_table(gateway: Gateway) -> None:
    pytest.importorskip("deltalake")
    table = "s3://lake/delta"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", f"http://{gateway.address}")
        patched.setenv("AWS_ALLOW_HTTP", "true")
        roquet.spark.archive_table(HERE, str(GOLDEN), table, "delta", broker_name=BROKER)
        found = roquet.spark.verify_table(HERE, str(GOLDEN), table, "delta", broker_name=BROKER)
        assert found.findings == []
        read = read_lake_options({"path": table, "lakeformat": "delta", "columns": "keys"})
        planned = plan_lake(read, read.conditions)
        reader = LakeReader(planned.address, arrow_schema(lake_type(["keys"])), read.conditions)
        rows = [batch.num_rows for task in planned.tasks for batch in reader.batches(task)]
        assert sum(rows) == len(log_rows(GOLDEN))


# ---------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda uri: uri.replace(f":{SECRET}@", ":wrong@"), "Check the credentials"),
        (lambda uri: uri.replace("@lake/", "@nobodys/"), "Create the bucket"),
        (lambda uri: uri.replace("127.0.0.1:", "127.0.0.1:1"), "Check the endpoint"),
        (lambda uri: uri.replace("s3://", "s4://"), "not a valid address"),
    ],
)
def test_storage_errors_are_short(
    change: object, told: str, gateway: Gateway, tmp_path: Path
) -> None:
    write_store(tmp_path / "store", mixed_messages(5))
    lake = change(with_secret(gateway.uri("errors")))  # type: ignore[operator]
    with pytest.raises(SparkError) as caught:
        run(tmp_path / "store", lake)
    text = str(caught.value)
    assert told in text
    assert SECRET not in text
    assert len(text.splitlines()) <= 3


def test_executor_errors_have_no_stack(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    """They come from another process, through a JVM."""
    write_store(tmp_path / "store", mixed_messages(50))
    lake = with_secret(gateway.uri("executors"))
    archive(spark, str(tmp_path / "store"), lake, broker_name=BROKER)
    gone = next(iter(Lake(lake).manifests(BROKER))).files[0].path
    Lake(lake).delete(gone)
    with pytest.raises(Exception, match="lacks a file that it names") as caught:
        read_lake(spark, lake).collect()
    assert "Traceback" not in str(caught.value)
    nothing = read_lake(spark, with_secret(gateway.uri("nothing")))
    with pytest.raises(Exception, match="There is no lake at s3://lake/nothing") as caught:
        nothing.collect()
    assert "Traceback" not in str(caught.value)


# ------------------------------------------------------------------------------ kills, and cuts


def test_a_killed_driver(gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PATHS)
    store, messages = tmp_path / "store", mixed_messages(160)
    write_store(store, messages[:120], step_ms=60_000)
    (tmp_path / "stages").mkdir()
    stages = Stages(tmp_path / "stages")
    lake = with_secret(gateway.uri("killed"))
    words = ["spark", "archive", str(store), "--lake", lake, "--broker-name", BROKER]
    words += ["--follow", "--interval", "100ms", "--master", "local[2]"]
    words += ["--conf", f"spark.driver.extraJavaOptions={QUICK_START}"]
    stages.hold(BEFORE_MANIFEST, 0)
    manifests = f"killed/_manifest/{BROKER}/"
    with driver(tmp_path, "tests.spark.archive_killed", [str(stages.folder), *words]) as killed:
        killed.wait_until(
            lambda: (
                stages.is_reached(BEFORE_MANIFEST, 0)
                and any(name.startswith(f"{manifests}0") for name in gateway.objects(manifests))
            )
        )
        killed.kill()
    names = gateway.objects("killed")
    assert f"{manifests}{0:020d}.json" not in names
    assert f"{manifests}run.json" in names
    run(store, lake)
    check(store, lake, gateway, "killed")


def test_killed_writers(gateway: Gateway, tmp_path: Path) -> None:
    """Each at another step; the log grows meanwhile."""
    environment = {**os.environ, "PYTHONPATH": PATHS}
    stores = [tmp_path / str(count) for count in (60, 90, 120)]
    for store in stores:
        write_store(store, mixed_messages(int(store.name)), step_ms=600_000)
    killed = 0
    for seed in range(ROUNDS):
        draw, folder = Random(seed), f"writers-{seed}"
        lake = gateway.uri(folder)
        for store in stores:
            end = (draw.choice([WRITING, COMMITTING, COMMITTED]), draw.randint(1, 6))
            words = [str(store), lake, "parquet", BROKER, str(draw.choice([4, 8, 16]) << 10)]
            writer = Writer(words, environment, end)
            code = writer.wait()
            assert code in {0, -signal.SIGKILL}, (seed, writer.errors)
            killed += code != 0
        run(stores[-1], lake)
        check(stores[-1], lake, gateway, folder)
    print(f"{ROUNDS} rounds, {killed} writers were killed")  # noqa: T201 - the result
    assert killed


async def test_a_cut_connection(gateway: Gateway, tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_store(store, mixed_messages(150), step_ms=600_000)
    run(store, gateway.uri("whole"))
    total_bytes = sum(gateway.objects("whole").values())
    failures: list[str] = []
    for number in range(CUTS):
        folder = f"cut-{number}"
        lake = gateway.uri(folder)
        async with FaultProxy(gateway.address) as proxy:
            cutting = asyncio.create_task(_cut(proxy, total_bytes * (number + 1) // (CUTS + 1)))
            try:
                await asyncio.to_thread(run, store, gateway.uri(folder, address=proxy.address))
            except SparkError as error:
                failures.append(str(error))
            finally:
                cutting.cancel()
                with suppress(asyncio.CancelledError):
                    await cutting
        await asyncio.to_thread(run, store, lake)
        await asyncio.to_thread(check, store, lake, gateway, folder)
    assert failures
    assert all("cannot be read or written" in each for each in failures), failures
    print(f"{CUTS} rounds, {len(failures)} runs failed")  # noqa: T201 - the result


async def _cut(proxy: FaultProxy, after_bytes: int) -> None:
    """Cut all connections for good, when so many bytes have gone to the server."""
    while proxy.to_server.passed_bytes < after_bytes:  # noqa: ASYNC110 - it counts, and tells nobody
        await asyncio.sleep(0.001)
    await proxy.refuse()
    proxy.reset()
