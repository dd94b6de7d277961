"""Reading a table of a broker page by page, as clients of 5.3.4 and later do.

Owns the rule: every page is requested with the table version of the first one. A broker whose table
has changed sends the first page again, with another version, and reading starts over. Brokers
before 5.3.4 send the whole table at once, without the number of entries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from roquet.errors import ProtocolError
from roquet.model.data_version import DataVersion
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.command import RemotingCommand

__all__ = ["PAGE_ENTRIES", "read_pages"]

PAGE_ENTRIES = 2_000
"""Upstream's ``maxPageSizeInGetMetadata``."""

STARTS_MAX = 20

_V = TypeVar("_V")


async def read_pages(
    ask: Callable[[int, str], Awaitable[RemotingCommand]],
    decode: Callable[[bytes], tuple[DataVersion, dict[str, _V]]],
    total_field: str,
) -> dict[str, _V]:
    """Read all pages of a table.

    Args:
        ask: Requests the page that begins with an entry, of a version.
        decode: Returns the version and the entries of a page.
        total_field: The ext field with the number of entries.

    Raises:
        ProtocolError: The table changes too fast.
    """
    table: dict[str, _V] = {}
    version: DataVersion | None = None
    starts = 0
    while starts < STARTS_MAX:
        known = "" if version is None else encode_body(version).decode()
        answer = await ask(len(table), known)
        found, page = decode(answer.body)
        if found != version:
            starts += 1
            version = found
            table = {}
        table.update(page)
        total = (answer.ext_fields or {}).get(total_field)
        if total is None or not page or len(table) >= int(total):
            return table
    raise ProtocolError(
        "The table changes faster than it can be read.",
        detail=f"the version changed {STARTS_MAX} times before the last page",
        hint="Retry when fewer topics and groups are being created.",
    )
