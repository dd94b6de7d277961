"""Batch consume queues of Apache RocketMQ: its files round-trip, its responses are reproduced.

``batch/crash`` and ``batch/clean`` are one store of a Java broker, killed and later shut down;
``batch/answers.jsonl`` has its responses to the requests of ``batch_queue_steps`` on the way.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from roquet.broker.broker import Broker
from roquet.broker.config import BrokerConfig
from roquet.format.batch_consume_queue import (
    BATCH_UNIT_BYTES,
    unpack_batch_unit,
    unpack_batch_units,
)
from roquet.remoting.client import RemotingClient
from roquet.runtime.clock import ManualClock, SystemClock
from roquet.runtime.files import Files
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.inspect.info import gather_info
from roquet.store.inspect.rebuild import plan_rebuild, rebuild
from roquet.store.inspect.verify import verify
from roquet.storefiles.view import StoreView
from tests.golden.records import SEGMENT_BYTES, log_records
from tests.interop.asker import Ask, Asker
from tests.interop.batch_queue_steps import (
    BATCH,
    DIFFERENT,
    ODD,
    clean_sends,
    odd_sends,
    reads,
    topics,
)
from tests.patience import NEVER_MS, PATIENT

DATA = Path(__file__).parent / "data" / "batch"
BATCH_TOPICS = {BATCH, ODD}
CONFIG = MessageStoreConfig(
    commit_log_file_bytes=SEGMENT_BYTES,
    consume_queue_file_bytes=600,
    batch_consume_queue_file_bytes=4 * BATCH_UNIT_BYTES,
    index_slots=100,
    index_entries=1000,
    os_page_cache_busy_timeout_ms=NEVER_MS,
)

JSON = dict[str, object]


def queue_files(root: Path) -> dict[str, bytes]:
    folder = root / "batchconsumequeue"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def store_of(root: Path) -> DefaultMessageStore:
    newest_ms = max(record.store_timestamp_ms for record in log_records(root))
    store = DefaultMessageStore(root, CONFIG, clock=ManualClock(newest_ms + 1))
    store.queues.is_batch_topic = BATCH_TOPICS.__contains__
    return store


@pytest.fixture(params=["clean", "crash"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name: str = request.param
    return Path(shutil.copytree(DATA / name, tmp_path / name))


def test_a_java_store_is_opened_and_closed_unchanged(root: Path) -> None:
    before = queue_files(root)
    store = store_of(root)
    report = store.load()
    assert report.clean_exit is (root.name == "clean")
    store.start(threads=False)
    assert store.max_offset_in_queue(BATCH, 0) == (72 if root.name == "clean" else 36)
    assert store.min_offset_in_queue(BATCH, 0) == 0
    store.shutdown()
    assert queue_files(root) == before


def test_queues_built_from_the_log_equal_javas(root: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    shutil.copytree(root / "commitlog", fresh / "commitlog")
    store = store_of(fresh)
    store.load()
    store.start(threads=False)
    store.shutdown()
    assert queue_files(fresh) == queue_files(root)


def test_every_offset_of_a_batch_serves_the_batch(root: Path) -> None:
    store = store_of(root)
    store.load()
    for name, data in queue_files(root).items():
        topic = name.split("/", 1)[0]
        for position in range(0, len(data), BATCH_UNIT_BYTES):
            unit = unpack_batch_unit(data, position)
            for offset in {unit.base_offset, unit.next_offset - 1} if unit.is_written else ():
                found = store.get_message(topic, 0, offset, 1)
                assert found.queue_offsets == [unit.base_offset]
                assert found.message_count == unit.batch_size
                assert found.next_begin_offset == unit.next_offset
                assert found.total_bytes == unit.size_bytes
    assert store.reader.damaged_records == 0


def test_verify_finds_no_fault_in_a_java_store(root: Path) -> None:
    with StoreView(Files(), root) as view:
        report = verify(view, SystemClock(), index_slots=100)
        info = gather_info(view, SystemClock())
    # Java keeps the flags of an inner batch on single messages if their producer had set them.
    wrong = [(fault.field, fault.physical_offset) for fault in report.faults]
    assert wrong == ([("sysFlag", 14777), ("sysFlag", 14927)] if root.name == "clean" else [])
    assert report.notes == []
    written = [
        unit
        for data in queue_files(root).values()
        for unit in unpack_batch_units(data)
        if unit.is_written
    ]
    queued = sum(len(path.read_bytes().rstrip(b"\0")) > 0 for path in simple_files(root))
    assert report.counts.queue_entries == len(written) + 3 * queued
    offsets = {queue.topic: queue.max_queue_offset for queue in info.queues}
    assert offsets[BATCH] == (72 if root.name == "clean" else 36)


def simple_files(root: Path) -> list[Path]:
    return [path for path in (root / "consumequeue").rglob("*") if path.is_file()]


def test_a_rebuild_gives_javas_files(root: Path, tmp_path: Path) -> None:
    with StoreView(Files(), root) as view:
        plan = plan_rebuild(view, into=tmp_path / "built", index_slots=100, index_entries=1000)
        result = rebuild(view, plan, SystemClock())
    assert {fault.field for fault in result.faults} <= {"sysFlag"}
    assert queue_files(tmp_path / "built") == queue_files(root)


# -- responses -----------------------------------------------------------------------------------


def rounds() -> Iterator[tuple[str, Ask]]:
    """The requests in the order in which the Java broker got them."""
    for name, asks in (
        ("empty", [*topics(), *reads(BATCH, 1)]),
        ("send", clean_sends()),
        ("read", reads(BATCH, 36)),
        ("send2", clean_sends(20)),
        ("odd", odd_sends()),
        ("oddread", reads(ODD, 30)),
    ):
        for ask in asks:
            yield name, ask


def comparable(answer: JSON) -> JSON:
    """A response without times, rates, addresses and the order of queues in a map."""
    fields = dict(msgspec.convert(answer.get("fields") or {}, dict[str, str]))
    fields.pop("timestamp", None)
    if "msgId" in fields:
        fields["msgId"] = ",".join(one[16:] for one in fields["msgId"].split(","))
    body = str(answer.get("body", ""))
    body = re.sub(r'"brokerName":"[^"]*"|"lastUpdateTimestamp":\d+|"topicPutTps":[\d.]+', "", body)
    return {
        "code": answer["code"],
        "remark": answer.get("remark") or "",
        "fields": fields,
        "body": sorted(body) or answer.get("body_length", 0),
    }


async def test_responses_equal_javas(tmp_path: Path) -> None:
    expected = {
        (line["round"], line["request"]): comparable(line)
        for line in map(json.loads, (DATA / "answers.jsonl").read_text().splitlines())
    }
    config = BrokerConfig(
        store_root=str(tmp_path), listen_port=0, bind_address="127.0.0.1", fast_failure=False
    )
    broker = Broker(config, CONFIG)
    await broker.start()
    different = set()
    try:
        async with RemotingClient(config=PATIENT) as client:
            asker = Asker(await client.connect(broker.address))
            for name, ask in rounds():
                answer = await asker.ask(ask)
                body = bytes(answer.body)
                got = comparable(
                    {
                        "code": answer.code,
                        "remark": answer.remark,
                        "fields": answer.ext_fields,
                        "body_length": len(body),
                        **({"body": body.decode()} if body.startswith(b"{") else {}),
                    }
                )
                if (name, ask.name) in expected and got != expected[name, ask.name]:
                    different.add(ask.name)
    finally:
        await broker.stop()
    assert different == set(DIFFERENT)
    mine = queue_files(tmp_path)
    java = queue_files(DATA / "clean")
    assert mine.keys() == java.keys()
    for name, data in mine.items():
        for position in range(0, len(data), BATCH_UNIT_BYTES):
            ours = unpack_batch_unit(data, position)
            theirs = unpack_batch_unit(java[name], position)
            assert (ours.base_offset, ours.batch_size, ours.size_bytes, ours.tags_code) == (
                theirs.base_offset, theirs.batch_size, theirs.size_bytes, theirs.tags_code
            )  # fmt: skip
