"""The contents of two frames, as named values, and where they differ.

A frame becomes a map from names (``code``, ``ext.offset``, ``body.topicList``, ``message.0.body``)
to values. Two values are the same if they are equal, or if they are of a kind that differs from run
to run and mean the same: offsets in the log and ids by the mapping that the replay learns, ports by
the mapping of ports, times if they are close to each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from roquet.format.commit_log import decode_record
from roquet.model.fastjson import loads
from roquet.model.message import StoredMessage
from roquet.model.message_id import OffsetMessageId
from roquet.model.properties import decode_properties
from roquet.model.properties_text import parse_properties
from roquet.remoting.codes import RequestCode as Code
from roquet.remoting.command import RemotingCommand

Values = dict[str, object]

MESSAGES = frozenset(
    {
        Code.PULL_MESSAGE,
        Code.LITE_PULL_MESSAGE,
        Code.QUERY_MESSAGE,
        Code.VIEW_MESSAGE_BY_ID,
        Code.CHECK_TRANSACTION_STATE,
    }
)
"""Whose bodies are records of the log."""

PROPERTIES = frozenset({Code.GET_BROKER_CONFIG, Code.GET_NAMESRV_CONFIG})
"""Whose bodies are settings, one a line."""

SETS = frozenset(
    {
        "consumeTimeSpanSet",
        "groupList",
        "lockOKMQSet",
        "topicList",
    }
)
"""Lists that upstream makes of sets: their order means nothing."""

TIMES = frozenset(
    {
        "bootTimestamp",
        "bornTime",
        "consumeTimeStamp",
        "deadTime",
        "delayTime",
        "earliestMessageTimeStamp",
        "indexLastUpdateTimestamp",
        "lastTimestamp",
        "lastUpdateTimestamp",
        "maxTimeStamp",
        "minTimeStamp",
        "PUSH_REPLY_TIME",
        "store_timestamp_ms",
        "storeTimestamp",
        "timeStamp",
        "timestamp",
    }
)
NEAR_MS = 1_500
"""How far times may be apart: the recorder saw frames before or after the broker's clock did."""

RATE_TOLERANCE = 0.001
"""How far rates may be apart: a timer of upstream's may be some milliseconds late."""

TIME_TEXTS = frozenset({"consumeTimeStampStr", "maxTimeStampStr", "minTimeStampStr", "runtime"})
"""Times for people; the machine may be in another zone."""

PLACES = frozenset(
    {
        "commitLogOffset",
        "indexLastUpdatePhyoffset",
        "physical_offset",
        "prepared_transaction_offset",
    }
)
"""Places in the log."""

OFFSET_IDS = frozenset({"offsetMsgId", "ORIGIN_MESSAGE_ID", "msgId"})
"""Ids that hold the broker's port and a place in the log."""

UNIQUE_IDS = frozenset({"transactionId", "UNIQ_KEY"})
"""Ids of clients; the broker makes one up for a message without."""

NOTHING = "(nothing)"


@dataclass
class Names:
    """Which of our values correspond to the recorded ones.

    Attributes:
        places: Offsets in the recorded log, and ours.
        ids: Ids that the recorded broker made, and ours.
        ports: Our ports, and the recorded ones.
    """

    places: dict[int, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    ports: Mapping[int, int] = field(default_factory=dict)
    _recorded_places: dict[int, int] = field(default_factory=dict)
    _recorded_ids: dict[str, str] = field(default_factory=dict)

    def same_place(self, recorded: int, ours: int) -> bool:
        """Whether two offsets hold the same message, as far as is known; learns them."""
        there = self.places.setdefault(recorded, ours)
        return there == ours and self._recorded_places.setdefault(ours, recorded) == recorded

    def same_offset_ids(self, recorded: str, ours: str) -> bool:
        pairs = zip(recorded.split(","), ours.split(","), strict=False)
        return recorded.count(",") == ours.count(",") and all(
            self._same_offset_id(*pair) for pair in pairs
        )

    def _same_offset_id(self, recorded: str, ours: str) -> bool:
        if len(recorded) != len(ours):
            return False
        theirs, mine = OffsetMessageId.parse(recorded), OffsetMessageId.parse(ours)
        return (
            theirs.store_host.ip == mine.store_host.ip
            and self._recorded_port(mine.store_host.port) == theirs.store_host.port
            and self.same_place(theirs.physical_offset, mine.physical_offset)
        )

    def same_unique_ids(self, recorded: str, ours: str) -> bool:
        """Whether two ids are equal, or made by the brokers for the same message."""
        return (
            len(recorded) == len(ours)
            and self.ids.setdefault(recorded, ours) == ours
            and self._recorded_ids.setdefault(ours, recorded) == recorded
        )

    def _recorded_port(self, ours: int) -> int:
        return self.ports.get(ours, ours)

    def in_words_of_the_recording(self, text: str) -> str:
        """Our text with the recorded ports."""
        return re.sub(
            r"(?<=127\.0\.0\.1:)\d+",
            lambda port: str(self._recorded_port(int(port[0]))),
            text,
        )


def values_of(command: RemotingCommand, code: int) -> Values:
    """The contents of a frame, by name; ``code`` is that of the request, also for a response."""
    values: Values = {
        "code": command.code,
        "codec": command.serialize_type.name,
        "flag": command.flag,
        "language": command.language.name,
        "version": command.version,
        "remark": command.remark,
    }
    for name, text in (command.ext_fields or {}).items():
        if name == "properties":
            values |= _named("ext.properties", decode_properties(text.encode()))
        elif text.startswith("{"):
            values |= leaves(f"ext.{name}", loads(text))
        else:
            values[f"ext.{name}"] = text
    return values | _body(command.body, code)


def _body(body: bytes, code: int) -> Values:
    if not body:
        return {}
    if code in MESSAGES:
        return _messages(body)
    if code in PROPERTIES:
        return _named("body", parse_properties(body.decode()))
    if body.startswith((b"{", b"[")):
        return leaves("body", loads(body))
    return {"body": body}


def _messages(body: bytes) -> Values:
    values: Values = {}
    start = count = 0
    while start < len(body):
        record = decode_record(body, start, len(body))
        values |= message_values(f"message.{count}", record)
        start += record.store_size
        count += 1
    return values | {"messages": count}


def message_values(prefix: str, record: StoredMessage) -> Values:
    """The contents of a message, by name."""
    values: Values = {
        name: getattr(record, name)
        for name in (
            "topic",
            "queue_id",
            "queue_offset",
            "physical_offset",
            "store_size",
            "body",
            "flag",
            "sys_flag",
            "body_crc",
            "born_timestamp_ms",
            "store_timestamp_ms",
            "reconsume_times",
            "prepared_transaction_offset",
        )
    }
    values |= {"born_host": str(record.born_host), "store_host": str(record.store_host)}
    return _named(prefix, values | _named("properties", record.properties))


def _named(prefix: str, values: Mapping[str, object]) -> Values:
    return {f"{prefix}.{name}": value for name, value in values.items()}


def leaves(path: str, value: object) -> Values:
    """The leaves of a JSON value, by path; empty maps and lists are leaves."""
    found: Values = {}
    if isinstance(value, dict) and value:
        for name, member in value.items():
            found |= leaves(f"{path}.{name}", member)
        return found
    if isinstance(value, list) and value:
        elements = sorted(value, key=str) if path.rpartition(".")[2] in SETS else value
        for number, element in enumerate(elements):
            found |= leaves(f"{path}.{number}", element)
        return found
    return {path: value}


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not the recorded one."""

    place: str
    code: int
    name: str
    recorded: object
    ours: object

    def __str__(self) -> str:
        return (
            f"{self.place} code {self.code}: {self.name} was {self.recorded!r:.300}, "
            f"is {self.ours!r:.300}"
        )


def differences(
    place: str, code: int, recorded: RemotingCommand, ours: RemotingCommand, names: Names
) -> Iterator[Difference]:
    """Where our frame differs from the recorded one."""
    if ours.code != recorded.code:
        # Nothing else of two responses can be compared if one of them is a refusal.
        said = ((recorded.code, recorded.remark), (ours.code, ours.remark))
        yield Difference(place, code, "code", *said)
        return
    yield from unlike(place, code, values_of(recorded, code), values_of(ours, code), names)


def unlike(
    place: str, code: int, recorded: Values, ours: Values, names: Names
) -> Iterator[Difference]:
    """The values that do not mean the same."""
    for name in recorded.keys() | ours.keys():
        was, is_ = recorded.get(name, NOTHING), ours.get(name, NOTHING)
        if not _same(name.rpartition(".")[2], was, is_, names):
            yield Difference(place, code, name, was, is_)


def _same(kind: str, recorded: object, ours: object, names: Names) -> bool:
    if type(recorded) is not type(ours) or NOTHING in (recorded, ours):
        return False
    if kind in PLACES:
        return names.same_place(int(str(recorded)), int(str(ours)))
    if kind in TIMES:
        return _near(recorded, ours)
    if isinstance(recorded, str) and isinstance(ours, str):
        if kind in OFFSET_IDS:
            return names.same_offset_ids(recorded, ours)
        if kind in UNIQUE_IDS:
            return names.same_unique_ids(recorded, ours)
        if kind in TIME_TEXTS:
            return re.sub(r"\d+", "0", recorded) == re.sub(r"\d+", "0", ours)
        return names.in_words_of_the_recording(ours) == recorded
    if isinstance(recorded, float) and isinstance(ours, float):
        return math.isclose(recorded, ours, rel_tol=RATE_TOLERANCE)
    return recorded == ours


def _near(recorded: object, ours: object) -> bool:
    return abs(int(str(recorded)) - int(str(ours))) <= NEAR_MS
