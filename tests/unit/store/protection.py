"""How a flipped bit of a record is detected, if at all: the table of docs/internals/verify.md."""

from __future__ import annotations

import enum

from roquet.format.commit_log import DispatchRequest
from roquet.model import sys_flag as flags
from roquet.model.topic import SCHEDULE_TOPIC

STORE_TIMESTAMP_AT = 56
SYS_FLAG_LAST_BYTE = 39

# The first name is the field itself; the others are what contradicts it first: a length that no
# longer fits, or the entry of a queue or an index that points to it.
SHOWS_AS: dict[str, set[str]] = {
    "totalSize": {"totalSize"},
    "magic": {"magic"},
    "bodyCRC": {"bodyCRC"},
    "queueId": {"queueId", "queueOffset", "physicalOffset"},
    "queueOffset": {"queueOffset", "physicalOffset"},
    "physicalOffset": {"physicalOffset"},
    "sysFlag": {"sysFlag", "bodyLength", "topicLength", "propertiesLength"},
    "storeTimestamp": {"storeTimestamp", "seconds", "beginTimestamp", "endTimestamp", "tagsCode"},
    "bodyLength": {"bodyLength", "topicLength", "propertiesLength"},
    "body": {"bodyCRC"},
    "topicLength": {"topicLength", "propertiesLength"},
    "topic": {"topic", "keyHash", "tagsCode"},
    "propertiesLength": {"propertiesLength"},
    "properties": {"properties", "keyHash", "tagsCode", "keys"},
}
UNPROTECTED = {
    "flag",
    "bornTimestamp",
    "bornHost",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
}


class Shows(enum.Enum):
    """Whether a flip is revealed."""

    ALWAYS = "always"
    NEVER = "never"
    BY_CHANCE = "by chance"


def unprotected_sys_flags(sys_flag: int) -> int:
    """Bits that may be either way in a record with these flags."""
    bits = flags.MULTI_TAGS | flags.TRANSACTION_COMMIT | flags.NEED_UNWRAP
    if sys_flag & flags.COMPRESSED:
        return bits | flags.COMPRESSED
    return bits | flags.COMPRESSION_LZ4 | flags.COMPRESSION_ZSTD


def shows(
    name: str, byte: int, bit: int, *, raw: bytes, record: DispatchRequest, between_ms: range
) -> Shows:
    """Whether a flip of a field is revealed.

    Args:
        name: The field.
        byte: Which byte of the record.
        bit: Which bit of the byte.
        raw: The record before the flip.
        record: The same, decoded.
        between_ms: Store timestamps that fit between those of the neighbours.
    """
    turned = bytearray(raw)
    turned[byte] ^= 1 << bit
    if name == "sysFlag":
        is_free = (1 << (8 * (SYS_FLAG_LAST_BYTE - byte) + bit)) & unprotected_sys_flags(
            record.sys_flag
        )
        return Shows.NEVER if is_free else Shows.ALWAYS
    if name == "storeTimestamp":
        end = STORE_TIMESTAMP_AT + 8
        time_ms = int.from_bytes(turned[STORE_TIMESTAMP_AT:end], "big", signed=True)
        return Shows.BY_CHANCE if time_ms in between_ms else Shows.ALWAYS
    if name == "properties":
        is_other = _is_other_text(record, bytes(turned))
        return Shows.NEVER if is_other else Shows.ALWAYS
    return Shows.NEVER if name in UNPROTECTED else Shows.ALWAYS


def _is_other_text(record: DispatchRequest, raw: bytes) -> bool:
    """Whether the properties are well formed and agree on keys, tags and delay."""
    fields = record_fields(raw, record.topic)
    try:
        text = raw[fields.index("properties") :].decode()
    except UnicodeDecodeError:
        return False
    pairs = [pair.partition("\x01") for pair in text.split("\x02") if pair]
    if any(not name or not separator for name, separator, _ in pairs):
        return False
    found = {name: value for name, _, value in pairs if value}
    names = ["UNIQ_KEY", "KEYS", "TAGS"] + ["DELAY"] * (record.topic == SCHEDULE_TOPIC)
    return all(found.get(name) == record.properties.get(name) for name in names)


def record_fields(raw: bytes, topic: str) -> list[str]:
    """The field of each byte of a record of version 1 with IPv4 hosts."""
    sizes = {
        "totalSize": 4,
        "magic": 4,
        "bodyCRC": 4,
        "queueId": 4,
        "flag": 4,
        "queueOffset": 8,
        "physicalOffset": 8,
        "sysFlag": 4,
        "bornTimestamp": 8,
        "bornHost": 8,
        "storeTimestamp": 8,
        "storeHost": 8,
        "reconsumeTimes": 4,
        "preparedTransactionOffset": 8,
        "bodyLength": 4,
        "body": int.from_bytes(raw[84:88], "big"),
        "topicLength": 1,
        "topic": len(topic.encode()),
        "propertiesLength": 2,
    }
    names = [name for name, size in sizes.items() for _ in range(size)]
    return names + ["properties"] * (len(raw) - len(names))
