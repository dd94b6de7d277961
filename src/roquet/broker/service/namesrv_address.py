"""Where the name servers are: as configured, by DNS, or from an address server.

Upstream's TopAddressing, and the part of BrokerOuterAPI that keeps the list of addresses. Owns the
choice between the three, and the last good list, which stays if a source fails or is empty.

=============================== =================================================================
settings                        addresses
=============================== =================================================================
namesrvAddr                     as listed, separated by semicolons
namesrvAddr and                 all addresses that the names resolve to, resolved again every
fetchNameSrvAddrByDnsLookup     ``updateNameServerAddrPeriod``
fetchNamesrvAddrByAddressServer the first line of the address server's response, every 10 s:
                                http://<rmqAddressServerDomain>:8080/rocketmq/
                                <rmqAddressServerSubGroup>, without the 8080 if the domain has a
                                port
=============================== =================================================================

Upstream's default domain is a third party's; here there is no default.
"""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlsplit

from roquet.broker.config import BrokerConfig
from roquet.errors import ClientError, ConfigError, RoquetError
from roquet.remoting.client import split_address
from roquet.remoting.endpoint import LogLimiter
from roquet.runtime.clock import Clock

__all__ = ["NamesrvAddresses", "address_server_url", "fetch_text", "parse_addresses"]

log = logging.getLogger(__name__)

FETCH_INTERVAL_MS = 10_000
"""Upstream's ``fetchNamesrvAddrInterval``."""

FETCH_TIMEOUT_MS = 3_000
FETCHED_BYTES_MAX = 64 << 10
ADDRESSES_MAX = 64
"""Each address gets a connection; a longer list cannot be one of name servers."""

_LOG_INTERVAL_MS = 60_000


def address_server_url(config: BrokerConfig) -> str | None:
    """Return the URL of the address server, if one is configured.

    Example:
        >>> address_server_url(BrokerConfig(address_server_domain="localhost"))
        'http://localhost:8080/rocketmq/nsaddr'
        >>> address_server_url(BrokerConfig(address_server_domain="localhost:80"))
        'http://localhost:80/rocketmq/nsaddr'
    """
    domain = config.address_server_domain
    if not domain:
        return None
    host = domain if ":" in domain else f"{domain}:8080"
    return f"http://{host}/rocketmq/{config.address_server_subgroup}"


def parse_addresses(text: str) -> list[str]:
    """Parse a semicolon-separated list of addresses, without duplicates.

    Raises:
        ConfigError: One of them is not an address, or there are too many.

    Example:
        >>> parse_addresses(" a:9876; b:9876;a:9876;")
        ['a:9876', 'b:9876']
    """
    addresses = list(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))
    for address in addresses:
        host, _ = split_address(address)
        if "," in host:
            raise ConfigError(
                f"{address!r} is no address", hint="Separate name servers with semicolons."
            )
    if len(addresses) > ADDRESSES_MAX:
        raise ConfigError(
            "The list of name servers is too long",
            detail=f"{len(addresses)} addresses, more than {ADDRESSES_MAX}",
        )
    return addresses


class NamesrvAddresses:
    """The list of name servers.

    Args:
        config: The broker's settings.
        clock: The time.

    Raises:
        ConfigError: A configured address is invalid, or no address server is configured.
    """

    def __init__(self, config: BrokerConfig, *, clock: Clock) -> None:
        self._configured = parse_addresses(config.namesrv_address)
        self._uses_dns = bool(self._configured) and config.fetch_namesrv_address_by_dns_lookup
        self._address_server: str | None = None
        if not self._configured and config.fetch_namesrv_address_by_address_server:
            self._address_server = address_server_url(config)
            if self._address_server is None:
                raise ConfigError(
                    "fetchNamesrvAddrByAddressServer needs the domain of the address server",
                    hint="Set rmqAddressServerDomain.",
                )
        self._update_period_ms = config.update_namesrv_address_period_ms
        self._current: list[str] = [] if self._uses_dns else self._configured
        self._log_limiter = LogLimiter(clock, interval_ms=_LOG_INTERVAL_MS)

    @property
    def current(self) -> list[str]:
        """The addresses last found."""
        return self._current

    @property
    def refresh_interval_ms(self) -> int | None:
        """The interval of refreshes; ``None`` for a fixed list."""
        if self._address_server is not None:
            return FETCH_INTERVAL_MS
        return self._update_period_ms if self._uses_dns else None

    async def refresh(self) -> None:
        """Look the addresses up again; if that fails, the last good list stays."""
        try:
            if self._address_server is not None:
                text = await fetch_text(self._address_server)
                found = parse_addresses(text.strip().partition("\n")[0])
            elif self._uses_dns:
                found = await _looked_up(self._configured)
            else:
                return
        except (RoquetError, OSError, TimeoutError) as error:
            self._warn(str(error).replace("\n", "; ") or type(error).__name__)
            return
        if not found:
            self._warn("the list is empty")
        elif found != self._current:
            log.info("name servers are now %s", ";".join(found))
            self._current = found

    def _warn(self, reason: str) -> None:
        more = self._log_limiter.allow("addresses")
        if more is not None:
            kept = ";".join(self._current) or "none"
            log.warning("name servers not found, keeping %s: %s%s", kept, reason, more)


async def _looked_up(names: list[str]) -> list[str]:
    loop = asyncio.get_running_loop()
    found: dict[str, None] = {}
    async with asyncio.timeout(FETCH_TIMEOUT_MS / 1000):
        for name in names:
            host, port = split_address(name)
            for entry in await loop.getaddrinfo(host, port):
                ip = str(entry[4][0])
                found[f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"] = None
    return list(found)[:ADDRESSES_MAX]


async def fetch_text(
    url: str, *, timeout_ms: int = FETCH_TIMEOUT_MS, max_bytes: int = FETCHED_BYTES_MAX
) -> str:
    """Fetch a short text from a web server.

    Uses HTTP/1.0, so that the response is not chunked and ends with the connection.

    Args:
        url: A plain HTTP URL.
        timeout_ms: The limit on the whole request.
        max_bytes: The limit on head and text together.

    Raises:
        ClientError: The response is not such a text, or it is too long.
        OSError: The connection failed.
        TimeoutError: It took too long.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ClientError(
            f"{url} is no address of a web server", hint="Write plain HTTP with a host."
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    request = f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
    async with asyncio.timeout(timeout_ms / 1000):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        try:
            writer.write(request.encode("ascii", "replace"))
            answer = b""
            while len(answer) <= max_bytes:
                data = await reader.read(max_bytes)
                if not data:
                    return _text_of(url, answer)
                answer += data
        finally:
            writer.close()
    raise ClientError(f"the response of {url} is too long", detail=f"more than {max_bytes} bytes")


def _text_of(url: str, answer: bytes) -> str:
    head, found, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = lines[0].split(" ", 2)
    if not found or not status[0].startswith("HTTP/") or status[1:2] != ["200"]:
        raise ClientError(f"{url} returned no text", detail=lines[0][:100])
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines[1:])
    }
    length = fields.get("content-length", "")
    if "transfer-encoding" in fields or (length.isdecimal() and int(length) > len(body)):
        raise ClientError(f"the response of {url} is truncated", detail=f"got {len(body)} bytes")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise ClientError(f"the response of {url} is not text") from None
