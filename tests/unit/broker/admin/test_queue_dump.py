"""The entries of a queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.broker.admin.queue_dump import ENTRIES_MAX
from roquet.broker.config import BrokerConfig
from roquet.format.consume_queue_ext import CqExtUnit
from roquet.model.java_string import java_hash
from roquet.model.subscription import SubscriptionData
from roquet.remoting.bodies.offset import QueryConsumeQueueResponseBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.admin import QueryConsumeQueueRequestHeader
from roquet.runtime.clock import ManualClock
from roquet.store.consume_queue_ext import ConsumeQueueExt
from tests.unit.broker.admin.clients_kit import subscribe
from tests.unit.broker.admin.kit import Desk
from tests.unit.store.kit import NOW_MS, message, opened, put
from tests.unit.store.kit import config as store_config

CODE = RequestCode.QUERY_CONSUME_QUEUE


def header(
    index: int = 0, count: int = 10, group: str | None = None, topic: str | None = "T"
) -> QueryConsumeQueueRequestHeader:
    return QueryConsumeQueueRequestHeader(
        topic=topic, queue_id=0, index=index, count=count, consumer_group=group
    )


async def dump(at: Desk, asked: QueryConsumeQueueRequestHeader) -> QueryConsumeQueueResponseBody:
    return await at.body_of(CODE, asked, QueryConsumeQueueResponseBody)


async def test_entries(at: Desk) -> None:
    at.put("T", 0, 5)
    found = await dump(at, header(index=1, count=2))
    assert (found.min_queue_index, found.max_queue_index) == (0, 5)
    assert (found.subscription_data, found.filter_data) == (None, None)
    places = [at.store.physical_offset_in_queue("T", 0, index) for index in (1, 2)]
    assert [each.physical_offset for each in found.queue_data or []] == places
    assert all(each.physical_bytes > 0 and not each.eval for each in found.queue_data or [])


async def test_entries_over_several_files(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    small = store_config(consume_queue_file_bytes=60)
    with opened(tmp_path, clock=clock, config=small) as store:
        at = Desk(BrokerConfig(store_root=str(tmp_path)), store, clock)
        at.put("T", 0, 8)
        found = await dump(at, header(index=1, count=99))
    assert len(found.queue_data or []) == 7


async def test_entries_are_bounded(at: Desk) -> None:
    at.put("T", 0, 2)
    found = await dump(at, header(count=0x7FFFFFFF))
    assert len(found.queue_data or []) == 2 <= ENTRIES_MAX
    assert (await dump(at, header(count=-1))).queue_data == []


async def test_an_unknown_group(at: Desk) -> None:
    at.put("T", 0, 1)
    found = await dump(at, header(group="G"))
    assert found.filter_data == "G@T is not online!"
    subscribe(at, "G", "T")
    found = await dump(at, header(group="G"))
    assert found.filter_data == "null"
    assert found.subscription_data is not None


async def test_entries_with_ext_units_show_the_verdict(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    with_ext = store_config(consume_queue_ext=True)
    with opened(tmp_path, clock=clock, config=with_ext) as store:
        at = Desk(BrokerConfig(store_root=str(tmp_path)), store, clock)
        put(store, message(topic="T", queue_id=0, TAGS="paid"))
        subscribe(at, "G", "T")
        found = await dump(at, header(group="G"))
        unasked = await dump(at, header())
    (entry,) = found.queue_data or []
    code = java_hash("paid")
    assert (entry.tags_code, entry.eval) == (code, True)
    assert entry.extend_data_json == (f'{{"msgStoreTime":{NOW_MS},"size":20,"tagsCode":{code}}}')
    assert [each.eval for each in unasked.queue_data or []] == [False]


async def test_the_filter_of_a_group_is_shown(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    with_ext = store_config(consume_queue_ext=True)
    with opened(tmp_path, clock=clock, config=with_ext) as store:
        config = BrokerConfig(store_root=str(tmp_path), calculate_filter_bitmap=True)
        at = Desk(config, store, clock)
        client = subscribe(at, "G", "T")
        wanted = SubscriptionData(
            topic="T", sub_string="a > 5", expression_type="SQL92", sub_version=7
        )
        at.consumers.table["G"].update_subscriptions([wanted])
        at.filters.register("G", [wanted])
        clock.advance(1)
        for value in ("6", "5"):
            put(store, message(topic="T", queue_id=0, a=value))
        found = await dump(at, header(group="G"))
        at.filters.unregister("G")
        buried = await dump(at, header(group="G"))
        assert client.asked == []
    positions = at.filters.bloom.positions("G#T")
    assert found.filter_data == (
        '{\n\t"bloomFilterData":{\n\t\t"bitNum":112,\n'
        f'\t\t"bitPos":[{",".join(map(str, positions))}]\n'
        f'\t}},\n\t"bornTime":{NOW_MS},\n\t"clientVersion":7,\n\t"consumerGroup":"G",\n'
        '\t"dead":false,\n\t"deadTime":0,\n\t"expression":"a > 5",\n'
        '\t"expressionType":"SQL92",\n\t"topic":"T"\n}'
    )
    assert f'"dead":true,\n\t"deadTime":{NOW_MS + 1}' in (buried.filter_data or "")
    entries = found.queue_data or []
    assert [each.eval for each in entries] == [True, False]
    hit, missed = ((each.bit_map or "").replace("\n", "") for each in entries)
    assert [len(hit) - 1 - at for at in sorted(set(positions), reverse=True)] == [
        at for at, bit in enumerate(hit) if bit == "1"
    ]
    assert missed == "0" * 112


@pytest.mark.parametrize(
    ("unit", "bits", "message_text"),
    [
        (CqExtUnit(5, 6, b"\x01\x80"), "1000000000000001\n", None),
        (CqExtUnit(5, 6, bytes(8) + b"\x07"), "00000111\n" + "0" * 64 + "\n", None),
        (CqExtUnit(5, 6), None, None),
        (None, None, "Cq extend not exist!addr: "),
    ],
)
async def test_ext_units(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unit: CqExtUnit | None,
    bits: str | None,
    message_text: str | None,
) -> None:
    clock = ManualClock(NOW_MS)
    with_ext = store_config(consume_queue_ext=True)
    with opened(tmp_path, clock=clock, config=with_ext) as store:
        at = Desk(BrokerConfig(store_root=str(tmp_path)), store, clock)
        at.put("T", 0, 1)
        monkeypatch.setattr(ConsumeQueueExt, "get", lambda *_: unit)
        (entry,) = (await dump(at, header())).queue_data or []
        address = entry.tags_code
    assert (entry.bit_map, entry.eval) == (bits, False)
    if message_text is None:
        assert entry.tags_code == 5
        assert '"msgStoreTime":6' in (entry.extend_data_json or "")
        assert ("filterBitMap" in (entry.extend_data_json or "")) == (bits is not None)
        if unit is not None and len(unit.filter_bitmap) == 2:
            assert (entry.extend_data_json or "").startswith('{"filterBitMap":[1,-128],"msg')
    else:
        assert entry.msg == f"{message_text}{address}"


async def test_no_such_queue(at: Desk) -> None:
    for topic in ("None", None):
        answer = await at.ask(CODE, header(topic=topic))
        remark = f"0@{topic or ''} is not exist!"
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


@pytest.mark.parametrize("index", [-1, 5, 1 << 62])
async def test_no_such_entry(at: Desk, index: int) -> None:
    at.put("T", 0, 5)
    answer = await at.ask(CODE, header(index=index))
    assert (answer.code, answer.remark, answer.body) == (
        ResponseCode.SUCCESS,
        f"Index {index} of 0@T is not exist!",
        b"",
    )
