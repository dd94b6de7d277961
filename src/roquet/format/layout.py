"""Layout tables of formats: consecutive big-endian fields.

Derives positions and :mod:`struct` formats from a table, so that a field's position is written
down once. ``scripts/compiled_declarations.py`` makes the C constants from the same tables.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["Field", "Layout"]


class Field(NamedTuple):
    """One field: upstream's name, its code in :mod:`struct`, and a note."""

    name: str
    code: str
    note: str = ""


class Layout:
    """A table of fields.

    Example:
        >>> unit = Layout(Field("offset", "q"), Field("size", "i"), Field("code", "q"))
        >>> unit.bytes, unit.at("code"), unit.only("size").format
        (20, 12, '>8xi')
    """

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self.struct = struct.Struct(">" + "".join(field.code for field in fields))
        self.bytes = self.struct.size
        self._names = [field.name for field in fields]

    def at(self, name: str) -> int:
        """Where a field starts."""
        before = self.fields[: self._names.index(name)]
        return struct.calcsize(">" + "".join(field.code for field in before))

    def part(self, first: str, last: str) -> struct.Struct:
        """The format of the fields from ``first`` to ``last``."""
        part = self.fields[self._names.index(first) : self._names.index(last) + 1]
        return struct.Struct(">" + "".join(field.code for field in part))

    def only(self, *names: str) -> struct.Struct:
        """The format that takes these fields, in the order of the table, and skips the others."""
        last = max(self._names.index(name) for name in names)
        codes = [
            field.code if field.name in names else f"{struct.calcsize('>' + field.code)}x"
            for field in self.fields[: last + 1]
        ]
        return struct.Struct(">" + "".join(codes))
