"""The body with which a broker registers, plain or compressed.

Owns the compressed form, which is zlib data of the following; integers are big-endian, texts are
UTF-8 with a 4-byte length prefix.

.. code-block:: text

    text          DataVersion as JSON
    4             number of topics
    text each     name readQueueNums writeQueueNums perm filterType {attributes as JSON}
    text          list of filter servers as JSON
    4             number of static topics; brokers before 5.0.0 end before this
    text each     TopicQueueMappingInfo as JSON

Invariants:

* A compressed body is never expanded beyond :data:`DECOMPRESSED_BYTES_MAX` bytes.
* Every length and count is checked against the remaining bytes before it is used.
"""

from __future__ import annotations

import struct
import zlib

from msgspec import Struct, field

from roquet.errors import ProtocolError
from roquet.model.data_version import DataVersion
from roquet.model.topic_config import TopicConfig
from roquet.model.topic_queue_mapping import TopicQueueMappingInfo
from roquet.remoting.bodies.codec import SERVED_DIALECT_BYTES_MAX, decode_body, encode_body
from roquet.remoting.bodies.topic import TopicConfigAndMappingSerializeWrapper
from roquet.remoting.codes import version_ordinal

__all__ = ["RegisterBrokerBody", "decode_register_body", "encode_register_body"]

DECOMPRESSED_BYTES_MAX = 64 << 20
"""Enough for some hundred thousand topics."""

STATIC_TOPICS_VERSION = version_ordinal("V5_0_0")

_INT = struct.Struct(">i")


class RegisterBrokerBody(Struct, rename="camel", kw_only=True):
    """The topics of a broker."""

    filter_server_list: list[str] = field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )


def encode_register_body(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """Encode the body; the header must say ``compressed`` too."""
    if not compressed:
        return encode_body(body)
    topics = body.topic_config_serialize_wrapper
    mappings = topics.topic_queue_mapping_info_map
    parts = [_text(encode_body(topics.data_version)), _INT.pack(len(topics.topic_config_table))]
    parts += [_text(_topic_line(topic)) for topic in topics.topic_config_table.values()]
    parts += [_text(encode_body(body.filter_server_list)), _INT.pack(len(mappings))]
    parts += [_text(encode_body(mapping)) for mapping in mappings.values()]
    return zlib.compress(b"".join(parts), level=zlib.Z_BEST_COMPRESSION)


def decode_register_body(
    data: bytes, *, compressed: bool, broker_version: int
) -> RegisterBrokerBody:
    """Decode the body.

    Args:
        data: The body.
        compressed: Whether it is compressed, according to the header.
        broker_version: The version in the request.

    Raises:
        ProtocolError: The body is damaged, too long, or in another form.
    """
    if not compressed:
        return decode_body(RegisterBrokerBody, data, dialect_bytes_max=SERVED_DIALECT_BYTES_MAX)
    reader = _Reader(_decompressed(data))
    topics = TopicConfigAndMappingSerializeWrapper(
        data_version=decode_body(DataVersion, reader.text(), dialect_bytes_max=0)
    )
    for _ in range(reader.count()):
        topic = _topic_of_line(reader.text())
        topics.topic_config_table[topic.topic_name or ""] = topic
    filter_servers = decode_body(list[str], reader.text(), dialect_bytes_max=0)
    if broker_version >= STATIC_TOPICS_VERSION:
        for _ in range(reader.count()):
            mapping = decode_body(TopicQueueMappingInfo, reader.text(), dialect_bytes_max=0)
            topics.topic_queue_mapping_info_map[mapping.topic or ""] = mapping
    return RegisterBrokerBody(
        filter_server_list=filter_servers, topic_config_serialize_wrapper=topics
    )


def _text(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _topic_line(topic: TopicConfig) -> bytes:
    words = (
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_filter_type,
    )
    # Most topics have no attributes, and there may be very many topics.
    attributes = encode_body(topic.attributes) if topic.attributes else b"{}"
    return " ".join(map(str, words)).encode() + b" " + attributes


def _topic_of_line(line: bytes) -> TopicConfig:
    words = line.decode("utf-8", "replace").split(" ", 5)
    try:
        name, read_queues, write_queues, perm, filter_type = words[:5]
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=int(read_queues),
            write_queue_nums=int(write_queues),
            perm=int(perm),
            topic_filter_type=filter_type,
        )
    except ValueError as error:
        raise ProtocolError(
            "Compressed register body with a bad topic", detail=f"{line[:80]!r}"
        ) from error
    if words[5:] not in ([], [""], ["{}"]):
        topic.attributes = decode_body(dict[str, str], words[5].encode(), dialect_bytes_max=0)
    return topic


def _decompressed(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, DECOMPRESSED_BYTES_MAX)
    except zlib.error as error:
        raise ProtocolError("Compressed register body is damaged", detail=str(error)) from error
    if not stream.eof:
        raise ProtocolError(
            "Compressed register body is cut off or too long",
            detail=f"{len(data)} bytes, decompressed {len(plain)} of {DECOMPRESSED_BYTES_MAX}",
        )
    return plain


class _Reader:
    """Reads a body from front to back."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def number(self, *, limit: int) -> int:
        """The next integer, which is at least 0 and at most ``limit``."""
        start = self.position
        if start + _INT.size <= len(self.data):
            (number,) = _INT.unpack_from(self.data, start)
            if 0 <= number <= limit:
                self.position = start + _INT.size
                return int(number)
        raise ProtocolError(
            "Compressed register body with a bad length",
            detail=f"at byte {start} of {len(self.data)}",
        )

    def count(self) -> int:
        """The number of texts that follow; each has at least a length prefix."""
        return self.number(limit=(len(self.data) - self.position) // _INT.size - 1)

    def text(self) -> bytes:
        length = self.number(limit=len(self.data) - self.position - _INT.size)
        end = self.position + length
        text = self.data[self.position : end]
        self.position = end
        return text
