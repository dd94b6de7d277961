"""Compiled plain sends do what the reference does."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roquet.client import Message
from roquet.client.hooks import MessageKind
from roquet.client.outgoing_message import OutgoingMessage
from roquet.client.send_header import header_literals, send_header
from roquet.errors import SendFailed
from roquet.model.message_queue import MessageQueue
from roquet.model.properties import properties_text
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import LanguageCode, RequestCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.frame import FrameDecoder, SerializeType
from roquet.remoting.outgoing import OutgoingRequests
from roquet.runtime import compiled

pytestmark = pytest.mark.skipif(not compiled.is_built("roquet.client._send"), reason="not compiled")

TEXTS = st.none() | st.text(st.characters(codec="utf-8"), max_size=20) | st.just("TagA")
INTS = st.integers(-(2**31), 2**31 - 1)
QUEUE = MessageQueue("Orders", "broker-a", 3)


def ready(message: Message, unique_id: str) -> OutgoingMessage:
    """The message as the reference path has it when it is ready to be sent."""
    properties = message.wire_properties() | {"UNIQ_KEY": unique_id}
    return OutgoingMessage(
        messages=(message,),
        code=RequestCode.SEND_MESSAGE_V2,
        topic=message.topic,
        body=message.body,
        flag=message.flag,
        sys_flag=0,
        properties=properties,
        properties_text=properties_text(properties),
        unique_ids=(unique_id,),
        kind=MessageKind.NORMAL,
    )


@given(
    tags=TEXTS,
    keys=TEXTS | st.lists(st.text(max_size=3), max_size=2),
    flag=INTS,
    born_ms=st.integers(0, 2**62),
    opaque=st.integers(0, 2**31 - 1),
    body=st.binary(min_size=1, max_size=50),
)
@example(tags='a"b', keys="k\\", flag=0, born_ms=1, opaque=2, body=b"x")
@example(tags="\x7f", keys="\x00", flag=-1, born_ms=1, opaque=2, body=b"x")
@example(tags="t", keys="k", flag=0, born_ms=1, opaque=0, body=b"x")
def test_frames_equal_those_of_the_reference_path(  # noqa: PLR0917 - each is drawn
    tags: str | None,
    keys: str | list[str] | None,
    flag: int,
    born_ms: int,
    opaque: int,
    body: bytes,
) -> None:
    from roquet.client._send import SendTemplate

    message = Message(QUEUE.topic, body, tags=tags, keys=keys, flag=flag)
    unique_id = "7F0000010B9F18B4AAC2000000000001"
    outgoing = ready(message, unique_id)
    literals = header_literals(
        outgoing, QUEUE, group="g", broker_name="broker-a", default_topic_queues=4
    )
    assert literals is not None
    frame = SendTemplate(literals).frame(tags, keys, unique_id, flag, born_ms, opaque, body)
    header = send_header(
        outgoing,
        QUEUE,
        group="g",
        broker_name="broker-a",
        default_topic_queues=4,
        born_ms=born_ms,
        properties=outgoing.properties_text,
    )
    usual = create_request(RequestCode.SEND_MESSAGE_V2, header, opaque=opaque, body=body)
    if frame is not None:
        assert frame == encode_command(usual)
    else:
        texts = [text for text in (tags, keys) if isinstance(text, str)]
        is_odd = any(
            not text.isascii() or not text.isprintable() or '"' in text or "\\" in text
            for text in texts
        )
        assert is_odd or isinstance(keys, list)


@pytest.mark.parametrize("name", ["-1903272", "x-1903274", "-1903275"])
def test_a_name_that_looks_like_a_value_has_no_literals(name: str) -> None:
    outgoing = ready(Message(QUEUE.topic, b"x"), "id")
    assert header_literals(
        outgoing, QUEUE, group="g", broker_name="broker-a", default_topic_queues=4
    )
    assert not header_literals(outgoing, QUEUE, group="g", broker_name=name, default_topic_queues=4)


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "msgId": st.just("7F00000100002A9F0000000000000011") | st.text(max_size=4),
        "queueId": st.integers(-1, 2**31).map(str) | st.text(max_size=3),
        "queueOffset": st.integers(-1, 2**63).map(str),
        "transactionId": st.just("7F0000010B9F18B4AAC2000000000001"),
        "MSG_REGION": st.just("DefaultRegion") | st.just(""),
        "TRACE_ON": st.sampled_from(["true", "false"]),
        "recallHandle": st.just("x"),
    },
)
PLAIN = {"msgId": "7F", "queueId": "3", "queueOffset": "17", "TRACE_ON": "true"}
ANSWERS = st.builds(
    RemotingCommand,
    code=st.just(0) | st.sampled_from([1, 10, 14]),
    language=st.sampled_from(LanguageCode),
    version=st.integers(0, 500),
    opaque=st.integers(0, 4),
    flag=st.just(1) | st.integers(0, 3),
    remark=st.none() | st.text(max_size=4),
    ext_fields=st.just(PLAIN) | st.none() | FIELDS,
    body=st.just(b"") | st.binary(max_size=3),
    serialize_type=st.sampled_from(SerializeType),
)


def taken(data: bytes, expected: set[int], plain: set[int]) -> dict[int, object]:
    """What each waiter gets, by opaque, when these requests may take a plain response."""
    from roquet.client import _send

    async def take() -> dict[int, object]:
        requests = OutgoingRequests(asyncio.get_running_loop())
        futures = {each: requests.expect(each, 310, "p", timeout_ms=60_000) for each in expected}
        requests.plain |= plain
        connection = SimpleNamespace(outgoing=requests)
        channel = _send.PlainChannel(connection, asyncio.get_running_loop())  # type: ignore[arg-type]
        decoder = FrameDecoder()
        decoder.feed(data)
        while True:
            decoder.take_with(lambda data, position: channel.take(data, position)[0])
            frame = decoder.next_frame()
            if frame is None:
                break
            command = decode_command(frame)
            if command.is_response:
                requests.answered(command)
        assert requests.plain <= set(requests.waiting)
        assert set(requests.due) == set(requests.waiting)
        requests.fail(lambda: SendFailed("gone"))
        return {each: future.result() for each, future in futures.items() if not future.exception()}

    return asyncio.run(take())


@given(answers=st.lists(ANSWERS, max_size=4), expected=st.sets(st.integers(0, 4)))
def test_responses_are_read_as_on_the_reference_path(
    answers: list[RemotingCommand], expected: set[int]
) -> None:
    data = b"".join(encode_command(answer) for answer in answers)
    usual = taken(data, expected, set())
    found = taken(data, expected, expected)
    assert found.keys() == usual.keys()
    for opaque, answer in usual.items():
        assert isinstance(answer, RemotingCommand)
        seen = found[opaque]
        if not isinstance(seen, tuple):
            assert seen == answer
            continue
        fields = answer.ext_fields or {}
        assert answer.code == 0
        assert not answer.body
        assert seen == (
            fields["msgId"],
            int(fields["queueId"]),
            int(fields["queueOffset"]),
            fields.get("transactionId"),
            fields.get("MSG_REGION"),
            fields.get("TRACE_ON") != "false",
        )
        assert set(fields) <= {*PLAIN, "transactionId", "MSG_REGION"}
