"""Requests as bytes for the tests of the hot path.

Frames are drawn so that plain and unusual ones meet: both codecs, other topics, queues, flags and
properties, missing, repeated and unknown fields, batches, pulls with and without filters, commits,
headers with white space, escapes and garbage, wrong lengths, cuts anywhere.
"""

from __future__ import annotations

import json
import struct

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from roquet.format.batch import encode_batch
from roquet.model.plain_send import RESERVED_NAMES, RESERVED_PREFIXES
from roquet.remoting.codes import RequestCode

UNIQUE_KEY = "7F00000171E15FFD2B2749B877600000"

Pairs = list[tuple[str, str]]


# ------------------------------------------------------------------------------------- frames


def frame(kind: int, header: bytes, body: bytes = b"") -> bytes:
    length = 4 + len(header) + len(body)
    return struct.pack(">iI", length, kind << 24 | len(header)) + header + body


def binary_frame(code: int, opaque: int, flag: int, pairs: Pairs, body: bytes) -> bytes:
    ext = b"".join(
        struct.pack(">H", len(name.encode()))
        + name.encode()
        + struct.pack(">i", len(value.encode()))
        + value.encode()
        for name, value in pairs
    )
    head = struct.pack(">hbhiiii", code, 0, 493, opaque, flag, 0, len(ext))
    return frame(1, head + ext, body)


def json_frame(
    code: int, opaque: int, flag: int, pairs: Pairs, body: bytes, *, style: int = 0
) -> bytes:
    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=style & 1 == 0)

    ext = ",".join(f"{text(name)}:{text(value)}" for name, value in pairs)
    members = [
        f'"code":{code}',
        f'"extFields":{{{ext}}}',
        f'"flag":{flag}',
        '"language":"JAVA"',
        f'"opaque":{opaque}',
        '"serializeTypeCurrentRPC":"JSON"',
        '"version":493',
    ]
    if style & 2:
        members.reverse()
    if style & 4:
        members.append('"remark":""')
    if style & 8:
        members.append('"remark":null')
    separator = ", " if style & 16 else ","
    return frame(0, f"{{{separator.join(members)}}}".encode(), body)


# --------------------------------------------------------------------------------- strategies

RESERVED = [
    *RESERVED_NAMES,
    *(f"{prefix}{end}" for prefix in RESERVED_PREFIXES for end in ("", "X")),
]
NAMES = st.sampled_from(
    [*RESERVED, "a", "key", "TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "TRAN_MSG", "POP_CK",
     "MSG_REGION", "TRACE_ON", "CLUSTER", "INNER_NUM", "TIMER_DELAY_MS", "__SHARDINGKEY",
     "__CRC32#", "REAL_TOPIC", "PGROUP", "_SYS_MSG_PRIORITY_", "ключ", "x y", "RECONSUME_TIME",
     "1ST_POP_TIME", "Price"]
)  # fmt: skip
VALUES = st.sampled_from(
    ["A", "B", "true", "false", "TRUE", "1", "-1", "k1 k2", " k1  k2 ", "你好", "é",
     "\U0001f600", 'say "hi"', "back\\slash", "tab\t", "\x7f", "\u2028", "nul\0", "", "x" * 60,
     "a\x01b", "/"]
)  # fmt: skip
MANY_TAGS = " || ".join(["A", *(f"other-{number}" for number in range(20))])
"""Compiled code leaves as many tags to the filter."""
PLAIN_PROPERTIES = st.sampled_from(
    [
        f"KEYS\x01order-1\x02TAGS\x01A\x02UNIQ_KEY\x01{UNIQUE_KEY}\x02WAIT\x01true\x02",
        f"TAGS\x01B\x02UNIQ_KEY\x01{UNIQUE_KEY}\x02",
        f"UNIQ_KEY\x01{UNIQUE_KEY}\x02greeting\x01你好\x02",
        "UNIQ_KEY\x01u\x02KEYS\x01a b c\x02",
    ]
)


@st.composite
def odd_properties(draw: DrawFn) -> str:
    pairs = draw(st.lists(st.tuples(NAMES, VALUES), max_size=5))
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
    return draw(
        st.sampled_from([text, text[:-1], text + "\x02", text + "odd", text + "\x01\x02", "\x02"])
    )


PROPERTIES = st.one_of(*[PLAIN_PROPERTIES] * 5, odd_properties())
BODIES = st.one_of(
    *[st.binary(min_size=1, max_size=40)] * 5, st.sampled_from([b"", b"x" * 900, b"y" * 1100])
)


ODD: dict[str, list[str]] = {
    "a": ["Gruppe ü", ""],
    "b": ["Unknown", "New", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "bad topic!", "", "Öde"],
    "d": ["", "x", "-3"],
    "e": ["4", "-1", "00", "+1", "x", "", "99999999999"],
    "f": ["1", "2", "4", "8", "12", "16", "32", "128", "256", "769", "-1"],
    "g": ["0", "-1", "9223372036854775807", "late"],
    "h": ["7", "-2147483648", "2147483648"],
    "j": ["1", "x", ""],
    "k": ["true", "False", ""],
    "l": ["16", "x", ""],
    "m": ["true", "false", "TRUE", ""],
    "consumerGroup": ["strangers", "CID_RMQ_SYS_x", "", "Gruppe ü"],
    "queueId": ["4", "-1", "00", "+1", "x", "", "99999999999"],
    "queueOffset": ["3", "5", "40", "-1", "x"],
    "maxMsgNums": ["1", "2", "0", "-1", "5000"],
    "sysFlag": ["4", "5", "7", "2", "0", "14", "20"],
    "suspendTimeoutMillis": ["0", "-5", "x"],
    "subscription": ["A", "A || B", MANY_TAGS, "", "||", "none"],
    "subVersion": ["1794728046100", "x"],
    "expressionType": ["SQL92", ""],
    "maxMsgBytes": ["1", "x"],
    "commitOffset": ["3", "-1", "x"],
}
ODD["topic"] = ODD["b"]
TOPIC_NAMES = st.sampled_from(["Orders", "Orders", "Other", "Narrow", "Batched"])
QUEUE_IDS = st.sampled_from(["0", "0", "1", "2", "3"])


@st.composite
def varied(draw: DrawFn, pairs: Pairs) -> Pairs:
    """The pairs unchanged, or with an odd value, or one missing, repeated, unknown, moved."""
    for _ in range(draw(st.sampled_from([0] * 8 + [1, 1, 2]))):
        place = draw(st.integers(0, len(pairs) - 1))
        name, value = pairs[place]
        pairs[place] = (name, draw(st.sampled_from(ODD.get(name, [value]))))
    what = draw(st.integers(0, 24))
    if what == 0:
        pairs.pop(draw(st.integers(0, len(pairs) - 1)))
    elif what == 1:
        pairs.append(pairs[draw(st.integers(0, len(pairs) - 1))])
    elif what == 2:
        pairs.append((draw(st.sampled_from(["x", "ReqT", "lo", "oway", "nsd", "brokerName"])), "1"))
    elif what == 3:
        pairs = draw(st.permutations(pairs))
    return pairs


@st.composite
def batch_body(draw: DrawFn) -> bytes:
    entries = draw(
        st.lists(
            st.tuples(st.integers(-2, 2), st.binary(max_size=30), PROPERTIES.map(str.encode)),
            max_size=4,
        )
    )
    body = encode_batch(entries)
    cut = draw(st.sampled_from([None] * 8 + [1, 7, 21, -1]))
    return body if cut is None else body[:cut]


@st.composite
def send_fields(draw: DrawFn, *, is_batch: bool) -> Pairs:
    return [
        ("a", "group"),
        ("b", draw(TOPIC_NAMES)),
        ("c", "TBW102"),
        ("d", "4"),
        ("e", draw(QUEUE_IDS)),
        ("f", "0"),
        ("g", "1794728025952"),
        ("h", "0"),
        ("i", draw(st.one_of(PROPERTIES, st.just("")) if is_batch else PROPERTIES)),
        ("j", "0"),
        ("k", "false"),
        ("l", "16"),
        ("m", "true" if is_batch else "false"),
        ("n", "broker-a"),
    ]


LONG_NAMES = dict(
    zip(
        "abcdefghijklmn",
        ["producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
         "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
         "batch", "bname"],
        strict=True,
    )
)  # fmt: skip


@st.composite
def pull_fields(draw: DrawFn) -> Pairs:
    return [
        ("consumerGroup", "readers"),
        ("topic", draw(TOPIC_NAMES)),
        ("queueId", draw(QUEUE_IDS)),
        ("queueOffset", draw(st.sampled_from(["0", "0", "1", "2"]))),
        ("maxMsgNums", "32"),
        ("sysFlag", draw(st.sampled_from(["6", "6", "7"]))),
        ("commitOffset", draw(st.sampled_from(["0", "1"]))),
        ("suspendTimeoutMillis", "1000"),
        ("subscription", draw(st.sampled_from(["*", "*", "A", "B || A", MANY_TAGS]))),
        ("subVersion", "0"),
        ("expressionType", "TAG"),
        ("maxMsgBytes", "262144"),
        ("bname", "broker-a"),
    ]


@st.composite
def commit_fields(draw: DrawFn) -> Pairs:
    return [
        ("consumerGroup", "readers"),
        ("topic", draw(TOPIC_NAMES)),
        ("queueId", draw(QUEUE_IDS)),
        ("commitOffset", draw(st.sampled_from(["0", "3"]))),
    ]


SENDS = (RequestCode.SEND_MESSAGE_V2,) * 5 + (RequestCode.SEND_MESSAGE,)
CODES = st.sampled_from(
    [int(code) for code in SENDS]
    + [int(RequestCode.SEND_BATCH_MESSAGE)] * 2
    + [int(RequestCode.PULL_MESSAGE)] * 3
    + [int(RequestCode.LITE_PULL_MESSAGE), int(RequestCode.UPDATE_CONSUMER_OFFSET), 9999]
)


@st.composite
def requests(draw: DrawFn) -> bytes:
    code = draw(CODES)
    body = b""
    is_batch = code == RequestCode.SEND_BATCH_MESSAGE
    if code in {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}:
        pairs = draw(pull_fields())
    elif code == RequestCode.UPDATE_CONSUMER_OFFSET:
        pairs = draw(commit_fields())
    else:
        pairs = draw(send_fields(is_batch=is_batch))
        body = draw(batch_body() if is_batch else BODIES)
    if code == RequestCode.SEND_MESSAGE:
        pairs = [(LONG_NAMES[name], value) for name, value in pairs]
    pairs = draw(varied(pairs))
    opaque = draw(st.sampled_from([1, 7, 0, -1, 2**31 - 1]))
    flag = draw(st.sampled_from([0] * 20 + [2, 2, 1, 4]))
    if draw(st.booleans()):
        data = binary_frame(code, opaque, flag, pairs, body)
    else:
        style = draw(st.sampled_from([0] * 8 + [1, 1, 2, 4, 8, 16]))
        data = json_frame(code, opaque, flag, pairs, body, style=style)
    return data


@st.composite
def damaged(draw: DrawFn) -> bytes:
    """A request with some bytes changed, most often in its header."""
    data = bytearray(draw(requests()))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, min(len(data) - 1, 400)))
        what = draw(st.integers(0, 3))
        if what == 0:
            data[place] = draw(st.integers(0, 255))
        elif what == 1:
            data[place : place + 1] = b""
        elif what == 2:
            data[place:place] = draw(
                st.sampled_from([b'"', b"\\", b"\\u0001", b"{", b",", b"\0", b"\xff"])
            )
        else:
            data[place] ^= 1 << draw(st.integers(0, 7))
    if draw(st.booleans()) and len(data) > 8:
        # The lengths fit again, so that only what is inside is damaged.
        header_bytes = int.from_bytes(data[5:8], "big")
        struct.pack_into(">i", data, 0, len(data) - 4)
        if header_bytes > len(data) - 8:
            data[5:8] = (len(data) - 8).to_bytes(3, "big")
    return bytes(data)


@st.composite
def streams(draw: DrawFn) -> list[bytes]:
    """Frames, cut into reads anywhere."""
    frames = st.one_of(*[requests()] * 7, damaged())
    data = b"".join(draw(st.lists(frames, min_size=1, max_size=10)))
    cuts = sorted(draw(st.sets(st.integers(1, max(len(data) - 1, 1)), max_size=3)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def plain_send(topic: str, queue_id: int, *, number: int = 0) -> bytes:
    pairs = [
        ("a", "group"), ("b", topic), ("c", "TBW102"), ("d", "4"), ("e", str(queue_id)),
        ("f", "0"), ("g", "1794728025952"), ("h", "0"),
        ("i", f"TAGS\x01A\x02UNIQ_KEY\x01{UNIQUE_KEY}\x02WAIT\x01true\x02"), ("j", "0"),
        ("k", "false"), ("m", "false"), ("n", "broker-a"),
    ]  # fmt: skip
    return json_frame(RequestCode.SEND_MESSAGE_V2, 1000 + number, 0, pairs, b"first")


def both_codecs(code: int, opaque: int, flag: int, pairs: Pairs, body: bytes = b"") -> list[bytes]:
    return [
        json_frame(code, opaque, flag, pairs, body, style=1),
        json_frame(code, opaque, flag, pairs, body, style=3),
        binary_frame(code, opaque, flag, pairs, body),
    ]


PRELUDE = [
    plain_send(topic, queue_id, number=number)
    for topic, queues in (("Orders", 4), ("Other", 4), ("Narrow", 1))
    for queue_id in range(queues)
    for number in range(2)
]
"""What makes both sides know their topics, and the hot path approve of them."""

SEND: Pairs = [
    ("a", "group"), ("b", "Orders"), ("c", "TBW102"), ("d", "4"), ("e", "0"), ("f", "0"),
    ("g", "1794728025952"), ("h", "0"),
    ("i", f"KEYS\x01k\x02TAGS\x01A\x02é\x01你好\x02UNIQ_KEY\x01{UNIQUE_KEY}\x02WAIT\x01true\x02"),
    ("j", "0"), ("k", "false"), ("m", "false"), ("n", "broker-a"),
]  # fmt: skip
BATCH = [(name, {"i": "", "m": "true"}.get(name, value)) for name, value in SEND]
KEYED_BATCH = [(name, {"m": "true"}.get(name, value)) for name, value in SEND]
LONG_SEND = [(LONG_NAMES[name], value) for name, value in SEND]
PULL: Pairs = [
    ("consumerGroup", "readers"), ("topic", "Orders"), ("queueId", "0"), ("queueOffset", "0"),
    ("maxMsgNums", "32"), ("sysFlag", "7"), ("commitOffset", "2"), ("suspendTimeoutMillis", "9"),
    ("subscription", "A"), ("subVersion", "0"), ("expressionType", "TAG"), ("bname", "broker-a"),
]  # fmt: skip
COMMIT: Pairs = [
    ("consumerGroup", "readers"), ("topic", "Orders"), ("queueId", "1"), ("commitOffset", "2"),
]  # fmt: skip
ENTRIES = encode_batch([(0, b"one", b"TAGS\x01A\x02"), (3, b"two", b"UNIQ_KEY\x01u\x02k\x01v\x02")])
