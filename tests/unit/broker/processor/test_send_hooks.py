from __future__ import annotations

import logging
from pathlib import Path

import pytest

from roquet.broker.hooks import (
    MessageType,
    StatsType,
    message_type,
    namespace_of,
)
from roquet.format.batch import encode_batch
from roquet.remoting.codes import ResponseCode
from roquet.remoting.hooks import RequestRefused
from roquet.store.config import FlushDiskType, replace
from tests.unit.broker.processor.hook_kit import Recorder
from tests.unit.broker.processor.send_kit import PLAIN, SMALL, UNIQUE_KEY, broker


def test_a_hook_sees_a_send_before_and_after(tmp_path: Path) -> None:
    hook = Recorder()
    with broker(tmp_path, region_id="R") as made:
        made.processor.send_hooks.append(hook)
        answer = made.send(f"{PLAIN}__SHARDINGKEY\x01k\x02", topic="ns%T", queue_id=-1)
        record = made.stored("ns%T", int((answer.ext_fields or {})["queueId"]))
    (context,) = hook.seen
    assert hook.done == [context]
    assert (context.namespace, context.topic, context.producer_group) == ("ns", "ns%T", "P")
    assert (context.body_bytes, context.born_host) == (4, "10.1.2.3:4567")
    assert (context.broker_address, context.broker_region_id) == ("127.0.0.1:10911", "R")
    assert (context.unique_key, context.message_type) == (UNIQUE_KEY, MessageType.ORDER)
    assert context.properties == f"{PLAIN}__SHARDINGKEY\x01k\x02"
    assert context.born_timestamp_ms == 1_699_999_999_000
    assert context.request_timestamp_ms == 1_700_000_000_000
    assert context.ext_fields["a"] == "P"
    assert (context.is_success, context.code, context.error_message) == (True, 0, None)
    assert (context.msg_id, context.queue_offset) == (record.offset_message_id, 0)
    assert context.queue_id == record.queue_id
    assert (context.message_count, context.wrote_bytes) == (1, record.store_size)
    assert context.stats_type is StatsType.SEND_SUCCESS


def test_a_hook_may_refuse(tmp_path: Path) -> None:
    refusing = Recorder(before=RequestRefused("not today", response_code=207))
    later = Recorder()
    with broker(tmp_path) as made:
        made.processor.send_hooks.extend([refusing, later])
        answer = made.send()
        assert made.store.max_physical_offset == 0
    assert (answer.code, answer.remark, answer.ext_fields) == (207, "not today", None)
    assert (later.seen, refusing.done) == ([], [])


def test_a_hook_that_fails_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = Recorder(before=ZeroDivisionError(), after=ZeroDivisionError())
    late = Recorder(after=RequestRefused("too late"))
    with broker(tmp_path) as made, caplog.at_level(logging.WARNING):
        made.processor.send_hooks.extend([broken, late])
        assert made.send().code == ResponseCode.SUCCESS
        assert made.count() == 1
    assert len(late.seen) == len(late.done) == 1
    assert len(caplog.records) == 3


def test_hooks_see_only_the_stores_refusals(tmp_path: Path) -> None:
    hook = Recorder()
    with broker(tmp_path) as made:
        made.processor.send_hooks.append(hook)
        made.send(topic="bad topic!")
        assert (len(hook.seen), len(hook.done)) == (1, 0)
        made.send(f"TIMER_DELAY_MS\x015\x02{PLAIN}")
        made.send(body=bytes((4 << 20) + 1))
    timed, long = hook.done
    assert (timed.code, timed.is_success, timed.wrote_bytes) == (1, False, 4)
    assert timed.error_message is not None
    assert timed.error_message.startswith("accurate timer message")
    assert (long.code, long.message_count, long.wrote_bytes) == (13, 1, (4 << 20) + 1)
    assert long.stats_type is StatsType.SEND_FAILURE


def test_hooks_see_batches_and_one_way_sends(tmp_path: Path) -> None:
    hook = Recorder()
    with broker(tmp_path) as made:
        made.processor.send_hooks.append(hook)
        made.send(batch=True, body=encode_batch([(0, b"a", b""), (0, b"b", b"")]))
        assert made.send(oneway=True).code == -1
        assert made.flow.sends_waiting == 0
    assert [context.message_count for context in hook.done] == [2, 1]
    assert (hook.done[0].msg_id or "").count(",") == 1


def test_the_after_hook_waits_for_the_disk(tmp_path: Path) -> None:
    hook = Recorder()
    sync_flush = replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    with broker(tmp_path, store_config=sync_flush) as made:
        made.processor.send_hooks.append(hook)
        made.send()
        assert (len(hook.done), made.flow.sends_waiting) == (0, 1)
        made.flush()
        assert (len(hook.done), made.flow.sends_waiting) == (1, 0)
        assert len(made.connection.answers) == 1


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, MessageType.NORMAL),
        ({"DELAY": "1", "TRAN_MSG": "true"}, MessageType.DELAY),
        ({"TIMER_DELIVER_MS": "1"}, MessageType.DELAY),
        ({"TRAN_MSG": "True"}, MessageType.TRANSACTION_HALF),
        ({"TRAN_MSG": "yes"}, MessageType.NORMAL),
        ({"__SHARDINGKEY": "k", "DELAY": "1"}, MessageType.ORDER),
    ],
)
def test_kinds_of_messages(properties: dict[str, str], kind: MessageType) -> None:
    assert message_type(properties) is kind


@pytest.mark.parametrize(
    ("resource", "namespace"),
    [
        ("T", ""),
        ("ns%T", "ns"),
        ("%RETRY%ns%g", "ns"),
        ("%DLQ%ns%g", "ns"),
        ("%RETRY%g", ""),
        ("rmq_sys_x%y", ""),
        ("%x", ""),
    ],
)
def test_namespaces(resource: str, namespace: str) -> None:
    assert namespace_of(resource) == namespace
