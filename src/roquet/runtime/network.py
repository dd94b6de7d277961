"""This machine's names and addresses, and reserved ports."""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import Protocol

__all__ = [
    "advertised_ip",
    "host_name",
    "is_loopback",
    "joined",
    "reserve_port",
    "reset_on_close",
]

_FALLBACK_IP = "127.0.0.1"


def host_name() -> str:
    """The name of this machine."""
    return socket.gethostname()


def is_loopback(host: str) -> bool:
    """Whether an address, or the name ``localhost``, is reachable from this machine only.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def advertised_ip(bind_address: str) -> str:
    """The address at which peers reach a server that listens on ``bind_address``.

    A wildcard becomes the address that packets to other machines would carry; nothing is sent to
    find it. A name becomes the first address that it resolves to.

    Example:
        >>> advertised_ip("127.0.0.1")
        '127.0.0.1'
    """
    try:
        address = ipaddress.ip_address(bind_address.strip("[]"))
    except ValueError:
        return _resolved(bind_address)
    if not address.is_unspecified:
        return str(address)
    family, probe = (
        (socket.AF_INET, "192.0.2.1") if address.version == 4 else (socket.AF_INET6, "2001:db8::1")
    )
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((probe, 9))
        except OSError:
            return _FALLBACK_IP
        return str(sock.getsockname()[0])


def joined(host: str, port: int) -> str:
    """Host and port as an address.

    Example:
        >>> joined("::1", 9876)
        '[::1]:9876'
    """
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def reserve_port(host: str, port: int = 0) -> socket.socket:
    """Reserve a port for servers of this program, until the socket is closed.

    The socket never listens: clients are refused, and no other program gets the port, until a
    server binds it with ``SO_REUSEADDR``. So a server can restart at the same address while other
    programs look for free ports.

    Args:
        host: The address.
        port: The port; 0 for any free one.

    Raises:
        OSError: The port is not available.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    held = socket.socket(family, kind, protocol)
    try:
        # Only after bind: a port that another process reserved like this is not free.
        held.bind(address)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        held.close()
        raise
    return held


class _Options(Protocol):
    """A socket, or a transport's stand-in for one."""

    def setsockopt(self, level: int, name: int, value: bytes, /) -> None: ...


def reset_on_close(connected: _Options) -> None:
    """Reset the connection when a socket is closed; unsent data is lost."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _resolved(name: str) -> str:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return _FALLBACK_IP
    return str(found[0][4][0])
