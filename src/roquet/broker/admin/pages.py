"""Pages of a table, in which clients since 5.3.4 ask for all topics or groups.

Owns the rule: pages are cut from the entries sorted by name. A question that names another version
of the table than there is now starts again at the first entry, because the table has moved. Long
pages are written in a thread: a thousand entries take some ten milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TypeVar

from msgspec import Struct

from roquet.broker.service.flow_control import FlowControl, RequestClass
from roquet.errors import ProtocolError
from roquet.model.data_version import DataVersion
from roquet.remoting.bodies.codec import decode_body, encode_body

__all__ = ["PAGE_ENTRIES_MAX", "encode_page", "page_of"]

PAGE_ENTRIES_MAX = 2_000
"""Upstream's ``splitMetadataSize``."""

WRITTEN_AT_ONCE_MAX = 100

_V = TypeVar("_V")


def page_of(
    table: Mapping[str, _V],
    data_version: DataVersion,
    *,
    start: int | None,
    known_version: str | None,
    max_entries: int | None,
) -> dict[str, _V]:
    """One page, or the whole table for a client that names none of the three.

    Example:
        >>> table = {"b": 2, "a": 1, "c": 3}
        >>> version = DataVersion(counter=7)
        >>> text = '{"counter":7}'
        >>> page_of(table, version, start=1, known_version=text, max_entries=2)
        {'b': 2, 'c': 3}
    """
    if start is None and known_version is None and max_entries is None:
        return dict(table)
    first = max(start or 0, 0)
    if not _is_version(known_version, data_version):
        first = 0
    count = PAGE_ENTRIES_MAX if max_entries is None else min(max_entries, PAGE_ENTRIES_MAX)
    names = sorted(table)[first : first + max(count, 0)]
    return {name: table[name] for name in names}


async def encode_page(flow: FlowControl, body: Struct, *, entries: int) -> bytes:
    """Write a body that has so many entries and is nobody else's to alter."""
    if entries <= WRITTEN_AT_ONCE_MAX:
        return encode_body(body)
    return await flow.run(RequestClass.ADMIN, partial(encode_body, body))


def _is_version(text: str | None, data_version: DataVersion) -> bool:
    if not text or not text.strip():
        return False
    try:
        return decode_body(DataVersion, text.encode()) == data_version
    except ProtocolError:
        return False
