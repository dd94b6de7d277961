"""The JSON files in the ``config`` folder of a store.

Owns which they are, and whether one can be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from roquet.errors import ConfigError
from roquet.model.fastjson import JsonSyntaxError, loads, without_nulls

BACKUP_SUFFIX = ".bak"
TOPICS = "topics.json"
CONSUMER_FILTERS = "consumerFilter.json"
_JSON_SUFFIX = ".json"
_JSON_WITHOUT_SUFFIX = frozenset({"transactionMetrics", "timermetrics"})
_TOPIC_TABLE = "topicConfigTable"

T = TypeVar("T")


def json_names(listed: Iterable[str]) -> list[str]:
    """Config files that hold JSON, backups aside, of a folder with these files."""
    names = set(listed)
    names |= {name.removesuffix(BACKUP_SUFFIX) for name in names}
    return sorted(filter(is_json_name, names))


def is_json_name(name: str) -> bool:
    """Whether a config file of this name, which is no backup, holds JSON."""
    return name.endswith(_JSON_SUFFIX) or name in _JSON_WITHOUT_SUFFIX


def json_fault(data: bytes | None) -> str | None:
    """Why a config file cannot be read, or ``None``; the file is missing if ``data`` is."""
    if data is None:
        return "is missing, its backup is there"
    if not data.strip():
        return "is empty"
    try:
        loads(data)
    except JsonSyntaxError as error:
        return error.detail or error.message
    return None


def topic_names(data: bytes | None) -> set[str] | None:
    """Topics that ``topics.json`` names; ``None`` if it cannot be read."""
    if data is None or json_fault(data) is not None:
        return None
    value = loads(data)
    table = value.get(_TOPIC_TABLE) if isinstance(value, dict) else None
    return {str(name) for name in table} if isinstance(table, dict) else None


def decode_table(table_type: type[T], text: str) -> T:
    """Read the text of a table: standard JSON, or fastjson's dialect.

    Unknown members are passed over, and members that are null count as missing, as upstream
    reads them.

    Raises:
        ConfigError: The text is no such table.
    """
    try:
        return msgspec.json.decode(text, type=table_type)
    except (msgspec.MsgspecError, RecursionError):
        pass  # Bare keys or nulls, or really bad: the other reader tells.
    try:
        return msgspec.convert(without_nulls(loads(text)), table_type, strict=False)
    except (JsonSyntaxError, msgspec.MsgspecError) as error:
        reason = error.detail if isinstance(error, JsonSyntaxError) else str(error)
        raise ConfigError(f"The text is no {table_type.__name__}.", detail=reason) from error
