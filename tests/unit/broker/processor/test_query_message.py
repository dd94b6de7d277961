"""Single messages by key, unique key and id."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.remoting.codes import RequestCode
from roquet.remoting.headers.pull import QueryMessageRequestHeader, ViewMessageRequestHeader
from roquet.store.results import QueryMessageResult
from tests.unit.broker.processor.pull_kit import TOPIC, PullBroker, bodies, pull_broker, tagged
from tests.unit.store.kit import NOW_MS, message


def query(key: str, *, max_num: int = 10, end_ms: int = NOW_MS + 1) -> QueryMessageRequestHeader:
    return QueryMessageRequestHeader(
        topic=TOPIC, key=key, max_num=max_num, begin_timestamp_ms=0, end_timestamp_ms=end_ms
    )


async def test_messages_by_key(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.put(
            message(b"one", topic=TOPIC, KEYS="k other"),
            message(b"two", topic=TOPIC, KEYS="x"),
            message(b"three", topic=TOPIC, KEYS="k"),
        )
        answer = await broker.ask_in_thread(RequestCode.QUERY_MESSAGE, query("k"))
        assert answer is not None
        assert (answer.code, answer.remark) == (0, None)
        assert bodies(answer) == [b"one", b"three"]
        last = broker.store.physical_offset_in_queue(TOPIC, 0, 2)
        assert answer.ext_fields == {
            "indexLastUpdateTimestamp": str(NOW_MS),
            "indexLastUpdatePhyoffset": str(last),
        }


async def test_no_such_key(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.put(message(topic=TOPIC, KEYS="k"))
        for header in (query("unknown"), query("k", end_ms=NOW_MS - 100_000)):
            answer = await broker.ask_in_thread(RequestCode.QUERY_MESSAGE, header)
            assert answer is not None
            assert (answer.code, answer.remark) == (
                22,
                "can not find message, maybe time range not correct",
            )
            assert answer.body == b""
            assert answer.ext_fields == {
                "indexLastUpdateTimestamp": "0",
                "indexLastUpdatePhyoffset": "0",
            }


@pytest.mark.parametrize(("said", "expected"), [("true", 32), ("false", 5), ("TRUE", 5), (None, 5)])
async def test_a_unique_key_has_its_own_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, expected: int
) -> None:
    with pull_broker(tmp_path) as broker:
        limits: list[int] = []

        def spy(_topic: str, _key: str, limit: int, *_: int) -> QueryMessageResult:
            limits.append(limit)
            return QueryMessageResult()

        monkeypatch.setattr(broker.store, "query_message", spy)
        ext_fields = {} if said is None else {"_UNIQUE_KEY_QUERY": said}
        header = query("k", max_num=5)
        await broker.ask_in_thread(RequestCode.QUERY_MESSAGE, header, **ext_fields)
        assert limits == [expected]


async def test_messages_by_unique_key(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.put(message(b"one", topic=TOPIC, UNIQ_KEY="0A0B"), tagged("a", b"two"))
        answer = await broker.ask_in_thread(
            RequestCode.QUERY_MESSAGE, query("0A0B"), _UNIQUE_KEY_QUERY="true"
        )
        assert answer is not None
        assert bodies(answer) == [b"one"]


async def view(broker: PullBroker, physical_offset: int) -> tuple[int, str | None, bytes]:
    header = ViewMessageRequestHeader(physical_offset=physical_offset)
    answer = await broker.ask_in_thread(RequestCode.VIEW_MESSAGE_BY_ID, header)
    assert answer is not None
    assert answer.ext_fields is None
    return answer.code, answer.remark, answer.body


async def test_a_message_by_id(tmp_path: Path) -> None:
    with pull_broker(tmp_path) as broker:
        broker.put(tagged("a", b"one"), tagged("b", b"two"))
        offset = broker.store.physical_offset_in_queue(TOPIC, 0, 1)
        record = broker.store.select_one(offset)
        assert record is not None
        assert await view(broker, offset) == (0, None, bytes(record))


@pytest.mark.parametrize("physical_offset", [-1, 1, 1 << 40])
async def test_no_message_at_the_offset(tmp_path: Path, physical_offset: int) -> None:
    with pull_broker(tmp_path) as broker:
        broker.put(tagged("a", b"one"))
        assert await view(broker, physical_offset) == (
            1,
            f"can not find message by the offset, {physical_offset}",
            b"",
        )
