"""``roquet store`` on the store of a Java broker that runs, was killed, and runs again."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.runtime.clock import SystemClock
from roquet.runtime.files import Files
from roquet.store.inspect.rebuild import plan_rebuild, rebuild
from roquet.store.inspect.report import Report
from roquet.store.inspect.verify import verify
from roquet.storefiles.view import StoreView
from tests.interop.javabroker import write_topics
from tests.interop.javaclient import JavaSendResult
from tests.interop.oracle import JavaOracle

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC = "Inspected"
QUEUES = 4
SEED = 31


def check(store: Path) -> tuple[Report, bool]:
    with StoreView(Files(), store) as view:
        return verify(view, SystemClock()), view.is_running


def test_a_java_store_runs_crashes_is_rebuilt_and_continues(
    java: JavaOracle, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    write_topics(store, {TOPIC: QUEUES})
    sent: list[JavaSendResult] = []
    with java.broker(store) as broker:
        acknowledgements = java.client.produce(
            broker, TOPIC, queues=QUEUES, count=2000, size=200, seed=SEED, window=16
        )
        for sent_one in acknowledgements:
            sent.append(sent_one)
            if len(sent) % 400 == 0:  # the broker appends during the check
                report, is_running = check(store)
                assert is_running
                assert report.faults == []
                assert report.counts.records >= len(sent)
        broker.kill()
    report, is_running = check(store)
    assert not is_running
    assert report.faults == []
    assert report.counts.records >= 2000

    with StoreView(Files(), store) as view:
        assert view.crashed
        result = rebuild(view, plan_rebuild(view, into=None), SystemClock())
    assert result.records == report.counts.records
    assert check(store)[0].faults == []

    with java.broker(store) as broker:
        consumed = java.client.consume(broker, [TOPIC], queues=QUEUES)
        assert [message.body_sha1 for message in consumed] == [
            message.body_sha1
            for message in sorted(sent, key=lambda s: (s.queue_id, s.queue_offset))
        ]
        keys = [f"{SEED}-k{number}" for number in (0, 700, 1999)]
        found = java.client.query(TOPIC, keys)
        # Java's recovery indexes the record at the end of an index file again, so a key may be
        # found twice; it must be the same message.
        places = [{message.physical_offset for message in found[key]} for key in keys]
        assert [len(same) for same in places] == [1, 1, 1]
        list(java.client.produce(broker, TOPIC, queues=QUEUES, count=50, size=50, seed=SEED + 1))
        broker.stop()
    report, _ = check(store)
    assert report.faults == []
    assert report.counts.records > result.records
