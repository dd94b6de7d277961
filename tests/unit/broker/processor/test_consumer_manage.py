"""The members of a group, and its progress."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.remoting.bodies.client import GetConsumerListByGroupResponseBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.headers import client, offset
from tests.unit.broker.admin.kit import Desk, desk
from tests.unit.broker.manager.kit import channel


@pytest.fixture(name="at")
def _at(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as made:
        made.add_topic("T")
        assert made.groups.find("G") is not None
        yield made


def join(at: Desk, client_id: str) -> None:
    at.consumers.register(
        "G",
        channel(client_id),
        consume_type=None,
        message_model=None,
        consume_from_where=None,
        subscriptions=(),
        notify_enabled=False,
    )


async def commit(
    at: Desk, queue_offset: int = 5, *, group: str = "G", topic: str = "T"
) -> RemotingCommand:
    header = offset.UpdateConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=0, commit_offset=queue_offset
    )
    return await at.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def query(
    at: Desk, *, group: str = "G", topic: str = "T", zero: bool | None = None
) -> RemotingCommand:
    header = offset.QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=0, set_zero_if_not_found=zero
    )
    return await at.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)


async def test_clients_of_a_group(at: Desk) -> None:
    join(at, "c1")
    join(at, "c2")
    header = client.GetConsumerListByGroupRequestHeader(consumer_group="G")
    body = await at.body_of(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, GetConsumerListByGroupResponseBody
    )
    assert body.consumer_id_list == ["c1", "c2"]


async def test_an_empty_group(at: Desk) -> None:
    header = client.GetConsumerListByGroupRequestHeader(consumer_group="None")
    answer = await at.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    assert (answer.code, answer.remark) == (1, "no consumer for this group, None")
    assert answer.ext_fields == {}


async def test_an_offset_is_committed(at: Desk) -> None:
    answer = await commit(at, 5)
    assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
    assert (await query(at)).ext_fields == {"offset": "5"}
    await commit(at, 3)
    assert (await query(at)).ext_fields == {"offset": "3"}


async def test_commits_that_are_refused(at: Desk) -> None:
    answer = await commit(at, group="None")
    assert (answer.code, answer.remark) == (26, "Group None not exist!")
    answer = await commit(at, topic="None")
    assert (answer.code, answer.remark) == (17, "Topic None not exist!")
    assert at.offsets.table == {}
    assert "None" not in at.groups.table


@pytest.mark.parametrize("missing", ["queueId", "commitOffset", "consumerGroup", "topic"])
async def test_a_commit_without_a_field(at: Desk, missing: str) -> None:
    request = create_request(RequestCode.UPDATE_CONSUMER_OFFSET, opaque=1)
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "5"}
    del fields[missing]
    request.ext_fields = fields
    answer = await at.handle(request, at.connection)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"the custom field <{missing}> is null"


async def test_a_commit_does_not_overwrite_a_reset_offset(tmp_path: Path) -> None:
    for server_side in (True, False):
        path = tmp_path / str(server_side)
        with desk(path, use_server_side_reset_offset=server_side) as at:
            at.add_topic("T")
            at.groups.find("G")
            at.offsets.assign_reset_offset("T", "G", 0, 1)
            answer = await commit(at, 9)
            assert answer.code == ResponseCode.SUCCESS
            expected = "Offset has been previously reset" if server_side else None
            assert answer.remark == expected
            assert at.offsets.table["T@G"][0] == (1 if server_side else 9)


async def test_a_new_group_reads_a_young_queue_from_its_beginning(at: Desk) -> None:
    at.put("T", 0, 3)
    assert (await query(at)).ext_fields == {"offset": "0"}
    assert (await query(at, zero=True)).ext_fields == {"offset": "0"}
    answer = await query(at, zero=False)
    assert (answer.code, answer.ext_fields) == (ResponseCode.QUERY_NOT_FOUND, {})
    assert answer.remark == "Not found, do not set to zero, maybe this group boot first"


NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


async def test_a_new_group_and_a_queue_without_messages(at: Desk) -> None:
    answer = await query(at)
    assert (answer.code, answer.remark, answer.ext_fields) == (22, NOT_FOUND, {})


async def test_a_new_group_and_an_old_queue(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    at.put("T", 0, 3)
    monkeypatch.setattr(at.store, "is_in_memory", lambda *_: False)
    answer = await query(at)
    assert (answer.code, answer.remark) == (22, NOT_FOUND)
    monkeypatch.undo()
    monkeypatch.setattr(at.store, "min_offset_in_queue", lambda *_: 1)
    answer = await query(at)
    assert (answer.code, answer.remark) == (22, NOT_FOUND)
