"""What a machine knows of its own place in the network."""

from __future__ import annotations

import ipaddress
import socket

__all__ = ["advertised_ip", "host_name", "is_loopback"]

_FALLBACK_IP = "127.0.0.1"


def host_name() -> str:
    """The name of this machine."""
    return socket.gethostname()


def is_loopback(host: str) -> bool:
    """Whether an address, or the name ``localhost``, is reached from this machine only.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("[::1]"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def advertised_ip(bind_address: str) -> str:
    """The address by which peers reach what listens on ``bind_address``.

    A wildcard becomes the address that packets to other machines would carry; nothing is sent to
    find it. A name becomes the first address that it stands for.

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


def _resolved(name: str) -> str:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return _FALLBACK_IP
    return str(found[0][4][0])
