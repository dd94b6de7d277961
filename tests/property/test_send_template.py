"""A header that is filled into a template is the header that the usual way writes."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from roquet.client import Message
from roquet.client.hooks import MessageKind
from roquet.client.outgoing_message import OutgoingMessage
from roquet.client.send_template import SendTemplates, send_header
from roquet.model.message_queue import MessageQueue
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import create_request
from roquet.remoting.json_header import encode_json_header

NAMES = st.from_regex(r"[a-zA-Z0-9_|%-]{1,20}", fullmatch=True)
INTS = st.integers(-(2**31), 2**31 - 1)
CODES = st.sampled_from([RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])


@given(
    topic=NAMES,
    group=NAMES,
    broker_name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
    code=CODES,
    numbers=st.tuples(INTS, INTS, INTS, st.integers(0, 2**62)),
    texts=st.lists(st.text(st.characters(codec="utf-8")), min_size=2, max_size=2),
)
@example("%RETRY%100%d", "a%b", "%s", RequestCode.SEND_MESSAGE_V2, (0, 0, 0, 1), ["", "%\x01\x02"])
@example(
    "-1903271", "-1903275", "-1903274", RequestCode.SEND_MESSAGE_V2, (0, 0, 0, 1), ["-1903275", ""]
)
def test_both_ways_give_the_same_bytes(  # noqa: PLR0917 - each is drawn
    topic: str,
    group: str,
    broker_name: str,
    code: RequestCode,
    numbers: tuple[int, int, int, int],
    texts: list[str],
) -> None:
    queue_id, sys_flag, flag, born_ms = numbers
    queue = MessageQueue(topic, broker_name, queue_id)
    templates = SendTemplates(group, default_topic_queues=4)
    for opaque, text in enumerate(texts):
        outgoing = OutgoingMessage(
            messages=(Message(topic, b"x"),),
            code=code,
            topic=topic,
            body=b"x",
            flag=flag + opaque,
            sys_flag=sys_flag,
            properties={},
            properties_text=text,
            unique_ids=(),
            kind=MessageKind.NORMAL,
        )
        filled = templates.fill(outgoing, queue, broker_name, born_ms=born_ms)
        if filled is None:
            assert "-190327" in f"{topic}{group}{broker_name}"
            continue
        template, values = filled
        header = send_header(
            outgoing,
            queue,
            group=group,
            broker_name=broker_name,
            default_topic_queues=4,
            born_ms=born_ms,
            properties=text,
        )
        usual = encode_json_header(create_request(code, header, opaque=opaque))
        assert template % (*values, opaque) == usual
