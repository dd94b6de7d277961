"""The two ids of a message.

Owns the offset message id (where the broker stored it) and the unique id (made by the producer).

Offset message id, upper-case hex of:

======= ===== ================================
bytes   IPv6  field
======= ===== ================================
4       16    store host address
4       4     store host port
8       8     physical offset in the CommitLog
======= ===== ================================

Unique id, upper-case hex of: address 4 or 16, low 16 bits of the process id 2, class-loader hash
4, milliseconds since the first of the month 4, counter 2.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from roquet.errors import ProtocolError
from roquet.model.host import Host

_IP_LENGTHS = {32: 4, 56: 16}
_UNIQUE_ID_TAIL = struct.Struct(">HiIH")


def offset_message_id(store_host: Host, physical_offset: int) -> str:
    """Id of the record at ``physical_offset`` of the broker at ``store_host``."""
    return (store_host.pack() + struct.pack(">q", physical_offset)).hex().upper()


def _unhex(text: str, what: str) -> tuple[bytes, bytes]:
    """Split an id into address and rest; raise unless it is 32 or 56 hex digits."""
    ip_length = _IP_LENGTHS.get(len(text))
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if ip_length is None or len(data) * 2 != len(text):
        raise ProtocolError(
            f"{text!r} is not {what}",
            detail=f"{len(text)} characters",
            hint=f"{what} has 32 hex digits, or 56 for IPv6",
        )
    return data[:ip_length], data[ip_length:]


class OffsetMessageId(NamedTuple):
    """The parts of an offset message id."""

    store_host: Host
    physical_offset: int

    @classmethod
    def parse(cls, text: str) -> OffsetMessageId:
        """Parse an id; raise unless it is 32 or 56 hex digits."""
        ip, rest = _unhex(text, "an offset message id")
        port, offset = struct.unpack(">iq", rest)
        return cls(Host(ip, port), offset)


class UniqueIdFactory:
    """Makes the unique ids of one producer: up to 65,536 per millisecond of a month.

    Attributes:
        prefix: The beginning of every id.
        counter: The number at the end of the last id.
    """

    def __init__(self, ip: bytes, process_id: int, loader_hash: int) -> None:
        """Set the constant parts: address, process id, and what differs within one process."""
        prefix = ip + struct.pack(">Hi", process_id & 0xFFFF, loader_hash)
        self.prefix = prefix.hex().upper()
        self.counter = 0

    def make(self, millis_of_month: int) -> str:
        """Return the next id for a time in milliseconds since the first of this month.

        The last days of a month need all 32 bits, which Java writes as a negative number.
        """
        self.counter = (self.counter + 1) & 0xFFFF
        return f"{self.prefix}{millis_of_month & 0xFFFFFFFF:08X}{self.counter:04X}"


class UniqueId(NamedTuple):
    """The parts of a unique id."""

    ip: bytes
    process_id: int
    loader_hash: int
    millis_of_month: int
    counter: int

    @classmethod
    def parse(cls, text: str) -> UniqueId:
        """Parse an id; raise unless it is 32 or 56 hex digits."""
        ip, rest = _unhex(text, "a unique message id")
        return cls(ip, *_UNIQUE_ID_TAIL.unpack(rest))
