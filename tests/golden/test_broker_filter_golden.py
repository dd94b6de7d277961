"""Filters by SQL92, compared with the tables, ext files and responses of Apache RocketMQ 5.4.0."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.expression_filter import make_filters
from roquet.broker.manager.consumer import ConsumerManager
from roquet.broker.manager.consumer_filter import ConsumerFilterManager
from roquet.model.subscription import SubscriptionData
from roquet.remoting.codec import decode_command
from roquet.remoting.codes import RequestCode
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from tests.golden.conftest import GOLDEN_DATA, GOLDEN_STORES
from tests.golden.records import SEGMENT_BYTES, log_records
from tests.golden.wire_frames import golden_frames
from tests.table_changes import text_of
from tests.unit.broker.admin.kit import desk

DAY_MS = 86_400_000
FILE = "config/consumerFilter.json"
EXPRESSION = "a > 3 and region is not null"
BORN_MS = 1_794_731_078_826
VERSION = 1_794_731_079_555

CopyStore = Callable[[str], Path]


def filters_at(root: Path, clock: ManualClock) -> ConsumerFilterManager:
    config = BrokerConfig(store_root=str(root))
    return ConsumerFilterManager.at(config, Files(), clock, latest_store_time_ms=lambda: 0)


@pytest.mark.parametrize("name", GOLDEN_STORES)
def test_the_file_is_written_back_byte_for_byte(golden_store: CopyStore, name: str) -> None:
    store = golden_store(name)
    text = (store / FILE).read_text("utf-8")
    clock = ManualClock(BORN_MS + 10_000)
    filters = filters_at(store, clock)
    assert filters.load() is None
    kept = json.loads(text)["filterDataByTopic"]
    assert {topic: set(groups) for topic, groups in filters.table.items()} == {
        topic: set(each["groupFilterData"]) for topic, each in kept.items()
    }
    assert all(each.data.is_dead for groups in filters.table.values() for each in groups.values())
    if '"dead":false' not in text:
        assert text_of(filters) == text
        assert filters.begin_persist() is None, "nothing is new"
    clock.advance(DAY_MS)
    filters.persist()
    assert json.loads((store / FILE).read_text("utf-8")) == {"filterDataByTopic": {}}


def test_a_heartbeat_stores_the_filters_that_upstream_stored(tmp_path: Path) -> None:
    """Bits, times and text of the golden file come from the group's name and the times alone."""
    kept = json.loads((GOLDEN_DATA / "store-ext-clean" / FILE).read_text("utf-8"))
    (golden,) = kept["filterDataByTopic"]["GoldenSql"]["groupFilterData"].values()
    clock = ManualClock(BORN_MS)
    filters = filters_at(tmp_path, clock)
    (tmp_path / "config").mkdir()
    filters.register("golden_ext", [subscription(version=1_794_731_078_447)])
    clock.advance(700)
    filters.register("golden_ext", [subscription(version=VERSION)])
    clock.advance(golden["deadTime"] - clock.now_ms())
    filters.unregister("golden_ext")
    filters.persist()
    assert (tmp_path / FILE).read_bytes() == (GOLDEN_DATA / "store-ext-clean" / FILE).read_bytes()


def subscription(version: int = VERSION) -> SubscriptionData:
    return SubscriptionData(
        topic="GoldenSql",
        sub_string=EXPRESSION,
        expression_type="SQL92",
        sub_version=version,
    )


def test_the_bit_maps_equal_upstreams(tmp_path: Path) -> None:
    """The golden log, stored again while its one group filters, gives the golden ext files."""
    golden = GOLDEN_DATA / "store-ext-crash"
    clock = ManualClock(BORN_MS)
    config = BrokerConfig(store_root=str(tmp_path), calculate_filter_bitmap=True)
    store = DefaultMessageStore(
        tmp_path,
        MessageStoreConfig(
            commit_log_file_bytes=SEGMENT_BYTES,
            consume_queue_file_bytes=600,
            max_message_bytes=SEGMENT_BYTES,
            consume_queue_ext=True,
            consume_queue_ext_file_bytes=4096,
        ),
        clock=clock,
    )
    consumers = ConsumerManager(config, clock, notify=lambda _group, _channels: None)
    filters = make_filters(config, Files(), clock, store=store, consumers=consumers)
    filters.register("golden_ext", [subscription()])
    store.load()
    store.start(threads=False)
    try:
        log = (golden / "commitlog" / f"{0:020d}").read_bytes()
        for record in log_records(golden):
            data = log[record.physical_offset : record.end_offset]
            assert store.append_to_commit_log(record.physical_offset, data)
    finally:
        store.shutdown()
    assert ext_files(tmp_path) == ext_files(golden)
    bitmaps: defaultdict[bytes, int] = defaultdict(int)
    for path in sorted((tmp_path / "consumequeue_ext/GoldenSql").glob("*/*")):
        data, position = path.read_bytes(), 0
        while size := int.from_bytes(data[position : position + 2], "big"):
            bitmaps[data[position + 20 : position + size]] += 1
            position += size
    assert bitmaps == {bytes(14): 4, bytes.fromhex("0100000010020000000000000000"): 26}


def ext_files(store: Path) -> dict[str, bytes]:
    root = store / "consumequeue_ext"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.glob("*/*/*"))}


async def test_expressions_are_checked_as_in_the_runs(tmp_path: Path) -> None:
    checked = 0
    with desk(tmp_path, property_filter=True) as at:
        for golden in golden_frames():
            if golden.request_code != RequestCode.CHECK_CLIENT_CONFIG:
                continue
            command = decode_command(golden.frame)
            if not golden.is_response:
                ours = await at.handle(command, at.connection)
                continue
            assert (ours.code, ours.remark, ours.body) == (
                command.code, command.remark or None, command.body,
            )  # fmt: skip
            checked += 1
    assert checked == 3
