"""Pages of a table, in which clients since 5.3.4 request all topics or groups.

Owns the rule: pages are cut from the entries sorted by name. A request with another version than
the table's current one starts again at the first entry, because the table has changed. A client
that requests the whole table gets it if it fits into a frame, and otherwise an error that asks for
pages. Names are sorted once and then follow the changes of the table; long bodies are encoded entry
by entry in a thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Struct

from roquet.broker.manager.change_log import ChangeLog
from roquet.broker.service.flow_control import FlowControl, RequestClass
from roquet.errors import ProtocolError
from roquet.model.data_version import DataVersion
from roquet.remoting.bodies.codec import decode_body, encode_body
from roquet.remoting.frame import MAX_FRAME_BYTES
from roquet.remoting.hooks import RequestRefused

__all__ = ["PAGE_ENTRIES_MAX", "SortedNames", "encode_table", "page_of"]

PAGE_ENTRIES_MAX = 2_000
"""Upstream's ``splitMetadataSize``."""

WRITTEN_AT_ONCE_MAX = 100
FOLLOWED_MAX = 200
"""After more changes than this, all names are sorted again."""

BATCH_ENTRY_BYTES_MIN = 100
"""A lower bound for an entry without its names."""

HEADER_BYTES_MAX = 64 << 10
"""A generous share of a frame for everything but the body."""

_V = TypeVar("_V")


def page_of(
    table: Mapping[str, _V],
    names: Callable[[], list[str]],
    data_version: DataVersion,
    *,
    start: int | None,
    known_version: str | None,
    max_entries: int | None,
) -> dict[str, _V]:
    """Return one page, or the whole table for a client that sets none of the three.

    Args:
        table: The table.
        names: Returns its names in order.
        data_version: Its version.
        start: The index of the first entry.
        known_version: The version of the client's earlier pages.
        max_entries: The size of the page.

    Example:
        >>> table = {"b": 2, "a": 1, "c": 3}
        >>> version = DataVersion(counter=7)
        >>> text = '{"counter":7}'
        >>> names = lambda: sorted(table)
        >>> page_of(table, names, version, start=1, known_version=text, max_entries=2)
        {'b': 2, 'c': 3}
    """
    if start is None and known_version is None and max_entries is None:
        return dict(table)
    first = max(start or 0, 0)
    if not _is_version(known_version, data_version):
        first = 0
    count = PAGE_ENTRIES_MAX if max_entries is None else min(max_entries, PAGE_ENTRIES_MAX)
    return {name: table[name] for name in names()[first : first + max(count, 0)]}


class SortedNames:
    """The sorted names of a table.

    Args:
        table: The table.
        changes: Its recent changes.
    """

    def __init__(self, table: Mapping[str, object], changes: ChangeLog) -> None:
        self._table = table
        self._changes = changes
        self._position = 0
        self._names: list[str] | None = None

    def get(self) -> list[str]:
        """Return the current names; read only."""
        names = self._names
        changed = self._changes.since(self._position)
        self._position = self._changes.position
        if names is None or changed is None or len(changed) > FOLLOWED_MAX:
            names = self._names = sorted(self._table)
            return names
        for name in changed:
            place = bisect_left(names, name)
            is_there = place < len(names) and names[place] == name
            if name not in self._table and is_there:
                del names[place]
            elif name in self._table and not is_there:
                names.insert(place, name)
        return names


async def encode_table(
    flow: FlowControl,
    body: Struct,
    key: str,
    page: dict[str, _V],
    member: Callable[[str, _V], bytes],
) -> bytes:
    """Encode a body with a map that may be long.

    Args:
        flow: Threads for long bodies.
        body: The body, in which the map is empty.
        key: The key of the map.
        page: The map, which nothing else may modify.
        member: Encodes the name of an entry, a colon, and the entry.

    Raises:
        RequestRefused: It does not fit into a frame.
    """
    # Every entry has its name twice and further fields, so the body will be longer.
    if 2 * sum(map(len, page)) + BATCH_ENTRY_BYTES_MIN * len(page) > MAX_FRAME_BYTES:
        raise _too_long(len(page))
    empty = f'"{key}":{{}}'.encode()
    before, found, after = encode_body(body).partition(empty)
    assert found, "the map exists, and is empty"

    def encode(members: Iterable[tuple[str, _V]]) -> bytes:
        inner = b",".join([member(name, entry) for name, entry in members])
        return b"".join((before, empty[:-1], inner, empty[-1:], after))

    if len(page) <= WRITTEN_AT_ONCE_MAX:
        data = encode(page.items())
    else:
        data = await flow.run(RequestClass.ADMIN, partial(encode, page.items()))
    if len(data) > MAX_FRAME_BYTES - HEADER_BYTES_MAX:
        raise _too_long(len(page))
    return data


def _too_long(entries: int) -> RequestRefused:
    return RequestRefused(
        f"{entries} entries do not fit a frame of {MAX_FRAME_BYTES} bytes: ask for pages of at "
        f"most {PAGE_ENTRIES_MAX}, by topicSeq and maxTopicNum or groupSeq and maxGroupNum"
    )


def _is_version(text: str | None, data_version: DataVersion) -> bool:
    if not text or not text.strip():
        return False
    try:
        return decode_body(DataVersion, text.encode()) == data_version
    except ProtocolError:
        return False
