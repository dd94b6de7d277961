r"""Plain sends as bytes: how the lane in Python reads requests and writes answers.

Owns the judgement of what is plain about the text of a send, as ``_frame.pyx`` has it for the
compiled lane; whatever is not plain is left to the reference path. A send is plain if

* its header has no members or ext fields but the known ones, the needed ones are there, and the
  numbers are decimal digits,
* the topic is approved, and the queue is one of its queues,
* its properties are pairs of different names with values, UNIQ_KEY among them, none of which asks
  for more than to be stored.

Sends of a producer hardly differ, so what follows from all ext fields but queue id (e), born
timestamp (g) and properties (i) is looked up as one :class:`Route`.

Ext fields of a binary header are not walked one by one, in whatever order they are. No value of a
plain send has a NUL, so the header is split at the lengths of the names, which are ``00 01``. The
length of a value of one byte would be split too, and gets another form before; see :data:`_PIECES`.
Pieces that were together in an earlier header, which was walked, need no second look.

==== ========================= ==== =========================
name field                     name field
==== ========================= ==== =========================
a    producerGroup             h    flag
b    topic                     i    properties
c    defaultTopic              j    reconsumeTimes
d    defaultTopicQueueNums     k    unitMode
e    queueId                   l    maxReconsumeTimes
f    sysFlag                   m    batch
g    bornTimestamp             n    bname
==== ========================= ==== =========================
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct, field

from roquet.broker.lane_answers import OPAQUE, AnswerForm, Part
from roquet.broker.processor.inner_message import SPECIAL
from roquet.remoting.codes import RequestCode
from roquet.store.plain_append import TopicNote

__all__ = ["Route", "SendAnswerWriter", "SendReader", "Shape", "shape_of"]

_Key = tuple[int | str | bytes, ...]

Read = tuple["Route", int, int, bytes, int, int]
"""Route, queue id, born timestamp in milliseconds, properties, opaque and flag of a send."""

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_Int = Annotated[int, Meta(ge=_INT_MIN, le=_INT_MAX)]

_SEND = int(RequestCode.SEND_MESSAGE)
_SEND_V2 = int(RequestCode.SEND_MESSAGE_V2)
_NEEDED = frozenset("abcdefgh")
_CONSTANT = "abcdfhjklmn"
_DEFAULTS = dict.fromkeys("abcdfhn", b"") | {"j": b"0", "k": b"false", "l": b"0", "m": b"false"}

_NO = "false"
_STORED_SYS_FLAGS = 0x703  # compressed, several tags, the kind of compression
_ROUTES_MAX = 4096
_SHAPES_MAX = 4096
_NUMBER_BYTES_MAX = 18
_UNIQUE_KEY_BYTES_MAX = 255
_NUMBER = re.compile("-?[0-9]{1,10}")
_SIMPLE = re.compile(rb"[ !#-\[\]-~]+")  # printable ASCII that JSON writes as it is


class _Fields(Struct, forbid_unknown_fields=True, gc=False):
    """The ext fields of SEND_MESSAGE_V2; defaults mean the same as no field."""

    a: str
    b: str
    c: str
    d: str
    e: str
    f: str
    g: str
    h: str
    i: str = ""
    j: str = "0"
    k: str = "false"
    l: str = "0"  # noqa: E741 - the name on the wire
    m: str = "false"
    n: str = ""


class _LongFields(_Fields, forbid_unknown_fields=True, gc=False, kw_only=True):
    """The ext fields of SEND_MESSAGE."""

    a: str = field(name="producerGroup")
    b: str = field(name="topic")
    c: str = field(name="defaultTopic")
    d: str = field(name="defaultTopicQueueNums")
    e: str = field(name="queueId")
    f: str = field(name="sysFlag")
    g: str = field(name="bornTimestamp")
    h: str = field(name="flag")
    i: str = field(default="", name="properties")
    j: str = field(default="0", name="reconsumeTimes")
    k: str = field(default="false", name="unitMode")
    l: str = field(default="0", name="maxReconsumeTimes")  # noqa: E741 - as above
    m: str = field(default="false", name="batch")
    n: str = field(default="", name="bname")


class _Header(Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    ext_fields: _Fields
    code: _Int = 0
    flag: _Int = 0
    language: str = "JAVA"
    opaque: _Int = 0
    remark: str | None = None
    version: _Int = 0
    serialize_type: str = field(default="JSON", name="serializeTypeCurrentRPC")


class _LongHeader(_Header, forbid_unknown_fields=True, gc=False, rename="camel"):
    ext_fields: _LongFields


_LETTERS = {
    _SEND_V2: {name.encode(): name for name in _Fields.__struct_fields__},
    _SEND: {
        name.encode(): letter
        for letter, name in zip(
            _LongFields.__struct_fields__, _LongFields.__struct_encode_fields__, strict=True
        )
    },
}

_decode = msgspec.json.Decoder(_Header).decode
_decode_long = msgspec.json.Decoder(_LongHeader).decode


class Route:
    """Where sends go that differ only in queue, time, properties and body.

    Attributes:
        topic: The store's note of the topic.
        queues: Queue ids by their texts, as ``str``, as ``bytes`` and as pieces of headers.
        flag: The message's flag.
        sys_flag: The message's sys flag.
    """

    __slots__ = ("flag", "queues", "sys_flag", "topic")

    def __init__(
        self, topic: TopicNote, queues: dict[str | bytes, int], flag: int, sys_flag: int
    ) -> None:
        self.topic = topic
        self.queues = queues
        self.flag = flag
        self.sys_flag = sys_flag


class Shape(NamedTuple):
    """Where values are among names and values in turn, -1 for those that are not there.

    Attributes:
        marks: The bytes that end names and values, in turn.
    """

    unique_key_at: int
    keys_at: int
    tags_at: int
    wait_at: int
    marks: bytes


def shape_of(names: tuple[bytes, ...]) -> Shape | None:
    """Where values are that mean something, ``None`` if properties of these names are not plain."""
    if len(set(names)) != len(names) or b"" in names or b"UNIQ_KEY" not in names:
        return None
    if any(name.decode("utf-8", "replace") in SPECIAL for name in names):
        return None
    unique_key, keys, tags, wait = (
        2 * names.index(name) + 1 if name in names else -1
        for name in (b"UNIQ_KEY", b"KEYS", b"TAGS", b"WAIT")
    )
    return Shape(unique_key, keys, tags, wait, b"\1\2" * len(names))


_ASCII_TEXT = bytes(range(3, 128))
_TEXT = bytes(range(3, 256))


class SendReader:
    """Reads the headers of sends.

    Args:
        note_of: The store's note of a topic, ``None`` if it cannot be stored to quickly.
    """

    def __init__(self, note_of: Callable[[str], TopicNote | None]) -> None:
        self._note_of = note_of
        self._queues: dict[str, dict[str | bytes, int]] = {}
        self._routes: dict[_Key, Route] = {}
        self._shapes: dict[tuple[bytes, ...], Shape] = {}

    def approve_topic(self, topic: str, queues: int) -> None:
        """Take sends to the first queues of a topic from now on."""
        ids: dict[str | bytes, int] = {}
        for queue_id in range(min(queues, _ROUTES_MAX)):
            text = b"%d" % queue_id
            ids[str(queue_id)] = ids[text] = ids[_piece("e", text)] = queue_id
        self._queues[topic] = ids

    def forget_topics(self) -> None:
        """Take no sends any more until topics are approved anew."""
        self._queues.clear()
        self._routes.clear()

    def read_json(self, header: bytes) -> Read | None:
        """Read a JSON header; ``None`` if it is not plain."""
        decode, code = _decode, _SEND_V2
        if not header.startswith(b'{"code":310,'):
            if header.startswith(b'{"code":10,') or b'"producerGroup"' in header:
                decode, code = _decode_long, _SEND
            elif header.startswith(b'{"code":'):
                return None
        try:
            command = decode(header)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        fields = command.ext_fields
        key = (
            command.code, fields.a, fields.b, fields.c, fields.d, fields.f, fields.h, fields.j,
            fields.k, fields.l, fields.m, fields.n,
        )  # fmt: skip
        route = self._routes.get(key) or self._make_route(key)
        born = fields.g
        if (
            route is None
            or command.code != code
            or not (born.isdigit() and born.isascii() and len(born) <= _NUMBER_BYTES_MAX)
        ):
            return None
        queue_id = route.queues.get(fields.e)
        if queue_id is None:
            return None
        try:
            properties = fields.i.encode()
        except UnicodeEncodeError:
            return None
        return route, queue_id, int(born), properties, command.opaque, command.flag

    def read_binary(self, header: bytes) -> Read | None:
        """Read a binary header; ``None`` if it is not plain."""
        if len(header) < _FIXED.size:
            return None
        code, opaque, flag, remark_bytes, ext_bytes = _FIXED.unpack_from(header)
        if remark_bytes or code not in _LETTERS or ext_bytes != len(header) - _FIXED.size:
            return None
        if code != _SEND_V2:
            return self._walk(header)
        pieces = header[_FIXED.size :].replace(_ONE, _ONE_OTHERWISE).split(_NAME_OF_ONE_LETTER)
        if len(pieces) < len(_PIECES) or _NEVER in header:
            return self._walk(header)
        pieces.sort()
        properties, born, queue = pieces.pop(_I), pieces.pop(_G), pieces.pop(_E)
        route = self._routes.get(tuple(pieces))
        if route is None:
            return self._walk(header)
        queue_id = route.queues.get(queue)
        born_text, text = born[_PIECE_HEAD_BYTES:], properties[_PIECE_HEAD_BYTES:]
        if (
            queue_id is None
            or born[:_PIECE_HEAD_BYTES] != _BORN_HEAD
            or len(born_text) != _BORN_DIGITS
            or not born_text.isdigit()
            or properties[:_PIECE_HEAD_BYTES] != b"i" + _LENGTH.pack(len(text))
        ):
            return self._walk(header)
        return route, queue_id, int(born_text), text, opaque, flag

    def _walk(self, header: bytes) -> Read | None:
        """Read a binary header field by field, and keep its route under its other pieces."""
        code, opaque, flag, _, _ = _FIXED.unpack_from(header)
        values = _values(header, _LETTERS[code])
        if values is None:
            return None
        try:
            fields = [values.get(name, _DEFAULTS[name]).decode("ascii") for name in _CONSTANT]
        except UnicodeDecodeError:
            return None
        fields_key = (code, *fields)
        route = self._routes.get(fields_key) or self._make_route(fields_key)
        born = values["g"]
        if route is None or not born.isdigit() or len(born) > _NUMBER_BYTES_MAX:
            return None
        queue_id = route.queues.get(values["e"])
        if queue_id is None:
            return None
        if code == _SEND_V2:
            others = [_piece(name, value) for name, value in values.items() if name not in "egi"]
            self._routes[b"", *sorted(others)] = route
        return route, queue_id, int(born), values.get("i", b""), opaque, flag

    def _make_route(self, key: tuple[int | str, ...]) -> Route | None:
        """The route of sends with these fields, ``None`` if they are not plain."""
        code, _, topic, _, queue_nums, sys_flag, flag, reconsumed, unit, most, batch, _ = map(
            str, key
        )
        queues = self._queues.get(topic)
        note = self._note_of(topic)
        if queues is None or note is None or int(code) not in _LETTERS:
            return None
        for number in (queue_nums, sys_flag, flag, reconsumed, most):
            if not _NUMBER.fullmatch(number) or not _INT_MIN <= int(number) <= _INT_MAX:
                return None
        if int(reconsumed) or int(sys_flag) & ~_STORED_SYS_FLAGS or (unit, batch) != (_NO, _NO):
            return None
        if len(self._routes) >= _ROUTES_MAX:
            self._routes.clear()
        route = self._routes[key] = Route(note, queues, int(flag), int(sys_flag))
        return route

    def split(self, properties: bytes) -> tuple[list[bytes], Shape] | None:
        r"""Names and values in turn, and where the ones that matter are; ``None`` if not plain.

        Example:
            >>> parts, shape = SendReader(lambda name: None).split(b"TAGS\1A\2UNIQ_KEY\1u\2")
            >>> parts[shape.unique_key_at]
            b'u'
        """
        parts = properties.replace(b"\1", b"\2").split(b"\2")
        if parts.pop() or b"" in parts:
            return None
        names = tuple(parts[::2])
        shape = self._shapes.get(names) or self._note_shape(names)
        marks = properties.translate(None, _ASCII_TEXT)
        if shape is None or (marks != shape.marks and not _is_text(properties, shape.marks)):
            return None
        unique_key = parts[shape.unique_key_at]
        if (
            not (unique_key.isalnum() or _SIMPLE.fullmatch(unique_key))
            or len(unique_key) > _UNIQUE_KEY_BYTES_MAX
            or (shape.wait_at >= 0 and parts[shape.wait_at] != b"true")
        ):
            return None
        return parts, shape

    def _note_shape(self, names: tuple[bytes, ...]) -> Shape | None:
        shape = shape_of(names)
        if shape is not None:
            if len(self._shapes) >= _SHAPES_MAX:
                self._shapes.clear()
            self._shapes[names] = shape
        return shape


def _is_text(properties: bytes, marks: bytes) -> bool:
    """Whether properties are pairs in UTF-8 that is not all ASCII."""
    if properties.translate(None, _TEXT) != marks:
        return False
    try:
        properties.decode()
    except UnicodeDecodeError:
        return False
    return True


# -------------------------------------------------------------------------------- binary headers

_FIXED = struct.Struct(">H3xiiiI")
_NAME_LENGTH = struct.Struct(">H")
_LENGTH = struct.Struct(">I")
_NAME_OF_ONE_LETTER = b"\0\1"
_ONE = b"\0\0\0\1"
_ONE_OTHERWISE = b"\xff\xff\xff\1"
_NEVER = b"\xff"
"""A byte that UTF-8 does not have."""

_PIECES = ("", *"abcdefghi")
"""The first pieces of a sorted header: nothing, then letter, length and value of each field.

A length of 1 is written as ``ff ff ff 01``; a header without ``ff`` can be told from its pieces.
"""

_E, _G, _I = (_PIECES.index(letter) for letter in "egi")
_PIECE_HEAD_BYTES = 5
_BORN_DIGITS = 13  # milliseconds of the years 2001 to 2286
_BORN_HEAD = b"g" + _LENGTH.pack(_BORN_DIGITS)


def _piece(letter: str, value: bytes) -> bytes:
    length = _LENGTH.pack(len(value))
    return letter.encode() + (_ONE_OTHERWISE if length == _ONE else length) + value


def _values(header: bytes, letters: dict[bytes, str]) -> dict[str, bytes] | None:
    """The values of a header by letters; ``None`` if it is not whole, or has unknown fields."""
    values: dict[str, bytes] = {}
    size = len(header)
    at = _FIXED.size
    try:
        while at < size:
            (name_bytes,) = _NAME_LENGTH.unpack_from(header, at)
            at += 2 + name_bytes
            letter = letters.get(header[at - name_bytes : at])
            (value_bytes,) = _LENGTH.unpack_from(header, at)
            at += 4 + value_bytes
            if letter is None or letter in values or at > size:
                return None
            values[letter] = header[at - value_bytes : at]
    except struct.error:
        return None
    return values if values.keys() >= _NEEDED else None


# ---------------------------------------------------------------------------------------- answers

_FRAME_HEAD = struct.Struct(">iI")
_BINARY_HEAD = struct.Struct(">iI5siiii")
_JSON_ORDER = ("queueId", "transactionId", "msgId", "queueOffset", OPAQUE)
_BINARY_HEADER_BYTES = 21
_BINARY = 1 << 24
_MESSAGE_ID_BYTES = 32


class SendAnswerWriter:
    """Writes answers to sends by their form, as frames.

    Args:
        form: The answer, cut at what differs.
        id_prefix: What message ids start with.
    """

    NAMES = frozenset(_JSON_ORDER)

    def __init__(self, form: AnswerForm, id_prefix: bytes) -> None:
        message_id = id_prefix + b"%016X"
        self._json = _format(form.json, dict.fromkeys(_JSON_ORDER, b"%d") | {
            "transactionId": b"%b", "msgId": message_id,
        })  # fmt: skip
        text = b"\0\0\0%c%b"
        places = dict.fromkeys(_JSON_ORDER, text) | {
            "msgId": _LENGTH.pack(_MESSAGE_ID_BYTES) + message_id
        }
        (first, name), *others = form.binary
        assert form.ext_size_at + 4 == _BINARY_HEADER_BYTES, "an answer without a remark"
        self._head = first[:5]
        (self._flag,) = struct.unpack_from(">i", first, 9)
        self._binary = _format([(first[_BINARY_HEADER_BYTES:], name), *others], places)
        # A literal and no text longer than the form, but for its marks.
        self._ext_bytes = len(self._binary % (0, b"", 0, b"", 0, 0, b""))

    def json(self, queue_id: int, unique_key: bytes, place: tuple[int, int], opaque: int) -> bytes:
        """An answer with a JSON header."""
        header = self._json % (queue_id, unique_key, place[1], place[0], opaque)
        size = len(header)
        return _FRAME_HEAD.pack(4 + size, size) + header

    def binary(
        self, queue_id: int, unique_key: bytes, place: tuple[int, int], opaque: int
    ) -> bytes:
        """An answer with a binary header."""
        queue = b"%d" % queue_id
        offset = b"%d" % place[0]
        ext_bytes = self._ext_bytes + len(queue) + len(unique_key) + len(offset)
        size = _BINARY_HEADER_BYTES + ext_bytes
        return _BINARY_HEAD.pack(
            4 + size, _BINARY | size, self._head, opaque, self._flag, 0, ext_bytes
        ) + self._binary % (
            len(queue), queue, len(unique_key), unique_key, place[1], len(offset), offset,
        )  # fmt: skip


def _format(parts: list[Part], places: dict[str, bytes]) -> bytes:
    names = [name for _, name in parts if name]
    assert names == [name for name in _JSON_ORDER if name in names], "the order of send answers"
    return b"".join(
        literal.replace(b"%", b"%%") + (places[name] if name else b"") for literal, name in parts
    )
