"""The replay finds what differs, and nothing else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from tests.golden.replay_compare import NEAR_MS, Names, differences
from tests.golden.replay_steps import Step, steps

RECORDED_PORT = 10911
OUR_PORT = 40123


def answer(code: int) -> RemotingCommand:
    """A recorded response to a request of a code, with a body if any has one."""
    answers = [step.command for step in steps("json") if _answers(step, code)]
    return max(answers, key=lambda command: len(command.body))


def _answers(step: Step, code: int) -> bool:
    return step.request.code == code and step.command.is_response and not step.from_client


def found(code: int, recorded: RemotingCommand, ours: RemotingCommand, names: Names) -> set[str]:
    return {each.name for each in differences("here", code, recorded, ours, names)}


def with_fields(command: RemotingCommand, **fields: str) -> RemotingCommand:
    return replace(command, ext_fields=(command.ext_fields or {}) | fields)


def message_id(port: int, physical_offset: int) -> str:
    return f"7F000001{port:08X}{physical_offset:016X}"


@pytest.fixture
def names() -> Names:
    return Names(ports={OUR_PORT: RECORDED_PORT})


def test_a_frame_equals_itself(names: Names) -> None:
    for step in steps("json"):
        assert not found(step.request.code, step.command, step.command, names), step.place


def test_a_refusal_hides_the_rest(names: Names) -> None:
    recorded = answer(RequestCode.PULL_MESSAGE)
    ours = replace(recorded, code=1, remark="no", ext_fields={}, body=b"")
    assert found(RequestCode.PULL_MESSAGE, recorded, ours, names) == {"code"}


def test_header_and_fields_are_compared(names: Names) -> None:
    recorded = answer(RequestCode.GET_MAX_OFFSET)
    ours = replace(recorded, version=1, remark="other", ext_fields={"offset": "15", "more": ""})
    assert found(RequestCode.GET_MAX_OFFSET, recorded, ours, names) == {
        "version",
        "remark",
        "ext.offset",
        "ext.more",
    }


def test_each_offset_maps_to_one_message(names: Names) -> None:
    recorded = with_fields(answer(RequestCode.SEND_MESSAGE_V2), msgId=message_id(10911, 500))
    ours = with_fields(recorded, msgId=message_id(OUR_PORT, 700))
    code = RequestCode.SEND_MESSAGE_V2
    assert not found(code, recorded, ours, names)
    assert names.places == {500: 700}
    assert not found(code, recorded, ours, names)
    elsewhere = with_fields(recorded, msgId=message_id(OUR_PORT, 701))
    assert found(code, recorded, elsewhere, names) == {"ext.msgId"}
    other = with_fields(recorded, msgId=message_id(10911, 501))
    assert found(code, other, ours, names) == {"ext.msgId"}
    foreign = with_fields(recorded, msgId=message_id(OUR_PORT + 1, 700))
    assert found(code, recorded, foreign, names) == {"ext.msgId"}


def test_each_broker_made_id_maps_to_one_message(names: Names) -> None:
    code = RequestCode.SEND_MESSAGE_V2
    recorded = with_fields(answer(code), transactionId="A" * 32)
    assert not found(code, recorded, with_fields(recorded, transactionId="B" * 32), names)
    third = with_fields(recorded, transactionId="C" * 32)
    assert found(code, recorded, third, names) == {"ext.transactionId"}


def test_times_may_differ_slightly(names: Names) -> None:
    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    recorded = with_fields(answer(code), timestamp="1794728026205")
    near = with_fields(recorded, timestamp=str(1_794_728_026_205 + NEAR_MS))
    far = with_fields(recorded, timestamp=str(1_794_728_026_205 + NEAR_MS + 1))
    assert not found(code, recorded, near, names)
    assert found(code, recorded, far, names) == {"ext.timestamp"}


def test_bodies_are_compared_leaf_by_leaf(names: Names) -> None:
    code = RequestCode.GET_TOPIC_CONFIG
    recorded = answer(code)
    ours = replace(recorded, body=recorded.body.replace(b'"perm":6', b'"perm":4,"extra":[]'))
    assert found(code, recorded, ours, names) == {"body.perm", "body.extra"}


def test_the_order_of_sets_is_ignored(names: Names) -> None:
    code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    recorded = replace(answer(code), body=b'{"groupList":["a","b"]}')
    assert not found(code, recorded, replace(recorded, body=b'{"groupList":["b","a"]}'), names)
    assert found(code, recorded, replace(recorded, body=b'{"groupList":["a"]}'), names) == {
        "body.groupList.1"
    }


def test_messages_are_compared_field_by_field(names: Names) -> None:
    code = RequestCode.PULL_MESSAGE
    recorded = answer(code)
    ours = replace(recorded, body=recorded.body.replace(b"TagA", b"TagB", 1))
    assert found(code, recorded, ours, names) == {"message.2.properties.TAGS"}


def test_addresses_are_mapped_to_the_recorded_ones(names: Names) -> None:
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    recorded = answer(code)
    for port, expected in ((OUR_PORT, set()), (OUR_PORT + 1, {"body.brokerDatas.0.brokerAddrs.0"})):
        ours = replace(recorded, body=recorded.body.replace(b":10911", b":%d" % port))
        assert found(code, recorded, ours, names) == expected
