"""A socket address as records and message ids hold it.

Owns the packed form: 4 (IPv4) or 16 (IPv6) address bytes, then the port as a 4-byte big-endian
integer.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

IPV4_HOST_BYTES = 8
IPV6_HOST_BYTES = 20


class Host(NamedTuple):
    """Address bytes and port."""

    ip: bytes
    port: int

    @classmethod
    def parse(cls, text: str) -> Host:
        """The host of ``1.2.3.4:80`` or ``[::1]:80``."""
        address, _, port = text.rpartition(":")
        return cls(ipaddress.ip_address(address.strip("[]")).packed, int(port))

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Host:
        """The host of its packed form of 8 or 20 bytes."""
        return cls(bytes(data[:-4]), struct.unpack(">i", data[-4:])[0])

    @property
    def is_ipv6(self) -> bool:
        """Whether the address has 16 bytes."""
        return len(self.ip) != 4

    def pack(self) -> bytes:
        """Address, then the port in 4 bytes."""
        return self.ip + struct.pack(">i", self.port)

    def __str__(self) -> str:
        """``ip:port``, an IPv6 address in brackets."""
        address = ipaddress.ip_address(self.ip)
        return f"[{address}]:{self.port}" if self.is_ipv6 else f"{address}:{self.port}"


LOOPBACK = Host(b"\x7f\x00\x00\x01", 10911)
