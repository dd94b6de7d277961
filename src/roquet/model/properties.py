"""Message properties: their names and their one-string form.

Owns the text ``name 0x01 value 0x02`` repeated. The writer always ends with 0x02; the reader
tolerates a missing last one and drops pairs with an empty name or value, as upstream does. Both
sides read the string as a map, so the order of pairs has no meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "
PROPERTIES_BYTES_MAX = 32767

KEYS = "KEYS"
TAGS = "TAGS"
WAIT_STORE_MSG_OK = "WAIT"
DELAY_TIME_LEVEL = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MSG_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
UNIQ_CLIENT_MESSAGE_ID_KEYIDX = "UNIQ_KEY"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
CLUSTER = "CLUSTER"
SHARDING_KEY = "__SHARDINGKEY"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CRC32 = "__CRC32#"


def properties_text(properties: Mapping[str, str]) -> str:
    """The one-string form of a map."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The stored form of a map."""
    return properties_text(properties).encode()


def decode_properties(data: bytes | memoryview) -> dict[str, str]:
    """Parse the stored form into a map; bytes that are not UTF-8 become U+FFFD, as in Java."""
    pairs = str(data, "utf-8", "replace").split(PROPERTY_SEPARATOR)
    if not pairs[-1]:
        pairs.pop()
    try:
        properties = dict([pair.split(NAME_VALUE_SEPARATOR) for pair in pairs])
    except ValueError:
        return _decode_patiently(pairs)
    if "" in properties or "" in properties.values():
        return _decode_patiently(pairs)
    return properties


def _decode_patiently(pairs: Iterable[str]) -> dict[str, str]:
    properties: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition(NAME_VALUE_SEPARATOR)
        if separator and name and value:
            properties[name] = value
    return properties
