"""The version of a settings table, which shows whether a copy is out of date."""

from __future__ import annotations

from msgspec import Struct, field


class DataVersion(Struct, rename="camel", kw_only=True):
    """The version of a table.

    Attributes:
        counter: How often the table was changed.
        state_version: How often the master changed before that.
        timestamp_ms: When the table was last changed.
    """

    counter: int = 0
    state_version: int = 0
    timestamp_ms: int = field(default=0, name="timestamp")
