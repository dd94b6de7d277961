"""The text of a large table, most of which stays the same from one write to the next.

Owns :class:`TextBlocks`, which keeps the text in blocks of entries. A broker may have a hundred
thousand topics, and each new one writes the file of all of them. Only the block to which it belongs
is encoded again; to see that the others have not changed takes a few milliseconds.

Invariants: entries of a table are replaced, never modified, so the same objects have the same text.
A block is known by the name of its first entry, so a removal does not shift the blocks behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import is_
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

__all__ = ["BLOCK_ENTRIES", "TextBlocks"]

E = TypeVar("E", bound=Struct)

BLOCK_ENTRIES = 500
"""How many entries a block has at most."""


class _Block(NamedTuple, Generic[E]):
    names: list[str]
    entries: list[E]
    text: bytes


class TextBlocks(Generic[E]):
    r"""Encodes the entries of a table, and keeps their text.

    Args:
        level: The nesting level of the entries in the file, at least 1.
        member: Encodes the name of an entry, a colon, and the entry, indented for that level.

    Example:
        >>> class Entry(Struct):
        ...     number: int
        >>> texts = TextBlocks[Entry](1, lambda name, entry: f'"{name}":{entry.number}'.encode())
        >>> b"".join(texts.pieces({"a": Entry(1), "b": Entry(2)}))
        b'{\n\t"a":1,\n\t"b":2\n}'
    """

    def __init__(self, level: int, member: Callable[[str, E], bytes]) -> None:
        self._line_break = b"\n" + b"\t" * level
        self._member = member
        self._blocks: dict[str, _Block[E]] = {}

    def pieces(self, table: dict[str, E]) -> Iterator[bytes]:
        """Yield the table as an indented map, block by block."""
        names, entries = list(table), list(table.values())
        blocks: dict[str, _Block[E]] = {}
        before = b"{"
        start = 0
        while start < len(names):
            block = self._known(names, entries, start) or self._encoded(names, entries, start)
            blocks[names[start]] = block
            yield before + self._line_break + block.text
            before = b","
            start += len(block.names)
        self._blocks = blocks
        yield (b"" if blocks else before + self._line_break) + self._line_break[:-1] + b"}"

    def _known(self, names: list[str], entries: list[E], start: int) -> _Block[E] | None:
        """The block that begins at a place, if it has not changed and cannot grow."""
        block = self._blocks.get(names[start])
        if block is None:
            return None
        end = start + len(block.names)
        may_grow = len(block.names) < BLOCK_ENTRIES and (
            end < len(names) and names[end] not in self._blocks
        )
        is_same = names[start:end] == block.names and all(
            map(is_, entries[start:end], block.entries)
        )
        return block if is_same and not may_grow else None

    def _encoded(self, names: list[str], entries: list[E], start: int) -> _Block[E]:
        end = self._end_of(names, start)
        members = zip(names[start:end], entries[start:end], strict=True)
        text = (b"," + self._line_break).join(self._member(*each) for each in members)
        return _Block(names[start:end], entries[start:end], text)

    def _end_of(self, names: list[str], start: int) -> int:
        """Where a block that begins at a place ends: at the next known one, or when it is full."""
        end = start + 1
        limit = min(start + BLOCK_ENTRIES, len(names))
        while end < limit and names[end] not in self._blocks:
            end += 1
        return end
