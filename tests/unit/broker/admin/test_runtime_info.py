"""The runtime info and the settings of the broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roquet.broker.admin.runtime_info import human_bytes
from roquet.model.properties_text import parse_properties
from roquet.remoting.bodies.broker import KVTable
from roquet.remoting.codes import RequestCode
from roquet.store.config import replace
from tests.golden.wire_frames import read_run
from tests.unit.broker.admin.kit import Desk, desk
from tests.unit.store.kit import NOW_MS

CLUSTER_LIST = {
    "brokerActive",
    "brokerVersionDesc",
    "commitLogDiskRatio",
    "earliestMessageTimeStamp",
    "getTransferredTps",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putTps",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "timerCongestNum",
    "timerDequeueTps",
    "timerEnqueueTps",
    "timerOffsetBehind",
    "timerReadBehind",
}
"""What ``mqadmin clusterList`` reads."""


async def info(at: Desk) -> dict[str, str]:
    return (await at.body_of(RequestCode.GET_BROKER_RUNTIME_INFO, None, KVTable)).table


async def test_runtime_info(at: Desk) -> None:
    at.put("T", 0, 3)
    at.stats.add_puts("T", 7, 700)
    table = await info(at)
    assert table.keys() >= CLUSTER_LIST
    assert table["brokerVersionDesc"] == "V5_4_0"
    assert table["putMessageTimesTotal"] == "3"
    assert table["msgPutTotalTodayNow"] == "7"
    assert table["earliestMessageTimeStamp"] == str(NOW_MS + 1)
    assert table["bootTimestamp"] == str(NOW_MS)
    assert table["remainTransientStoreBufferNumbs"] == "2147483647"
    assert table["sendThreadPoolQueueCapacity"] == "10000"
    assert table["remainHowManyDataToFlush"] == human_bytes(at.store.max_physical_offset)
    assert table["commitLogDirCapacity"].startswith("Total : ")
    assert "remainHowManyDataToCommit" not in table


async def test_the_progress_of_delay_levels_is_shown(at: Desk) -> None:
    at.put("SCHEDULE_TOPIC_XXXX", 2, 5)
    at.delay_offsets[3] = 4
    table = await info(at)
    shown = {name: text for name, text in table.items() if name.startswith("schedule")}
    assert shown == {"scheduleMessageOffset_3": "4,5"}


async def test_every_name_of_upstream_is_present(at: Desk) -> None:
    """Those of a recorded broker, except a path and the delay levels in use."""
    recorded = {
        name
        for each in read_run("json")
        if each.is_response and each.known_code == RequestCode.GET_BROKER_RUNTIME_INFO
        for name in json.loads(each.frame.body)["table"]
        if not name.startswith(("scheduleMessageOffset_", "commitLogDiskRatio_"))
    }
    assert recorded
    table = await info(at)
    assert recorded - table.keys() == set()
    assert table["ackThreadPoolQueueHeadWaitTimeMills"] == "0"


async def test_pending_work_is_shown(at: Desk) -> None:
    at.flow.sends_waiting = 17
    assert (await info(at))["sendThreadPoolQueueSize"] == "17"


async def test_transient_buffers_have_something_to_commit(at: Desk) -> None:
    at.store.components.config = replace(at.store.config, transient_store_pool=True)
    assert (await info(at))["remainHowManyDataToCommit"] == "0 B"


async def test_config(tmp_path: Path) -> None:
    with desk(tmp_path, broker_id=3, namesrv_address="127.0.0.1:9876") as at:
        answer = await at.ask_ok(RequestCode.GET_BROKER_CONFIG)
        settings = parse_properties(answer.body.decode())
        assert settings["brokerName"] == "broker-a"
        assert settings["brokerId"] == "3"
        assert settings["namesrvAddr"] == "127.0.0.1:9876"
        assert settings["autoCreateTopicEnable"] == "true"
        assert settings["flushDiskType"] == "ASYNC_FLUSH"
        assert answer.ext_fields is not None
        version = json.loads(answer.ext_fields["version"])
        assert version == {"counter": 0, "stateVersion": 0, "timestamp": NOW_MS}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1024.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 60, "5.0 EiB"),
        (1 << 70, "1024.0 EiB"),
    ],
)
def test_human_readable_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text
