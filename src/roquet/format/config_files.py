"""The JSON files in the ``config`` folder of a store.

Owns which files they are, and whether one can be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from roquet.errors import ConfigError
from roquet.model.fastjson import JsonSyntaxError, loads, without_nulls
from roquet.model.topic_config import TopicConfig

BACKUP_SUFFIX = ".bak"
TOPICS = "topics.json"
CONSUMER_FILTERS = "consumerFilter.json"
_JSON_SUFFIX = ".json"
_JSON_WITHOUT_SUFFIX = frozenset({"transactionMetrics", "timermetrics"})
_TOPIC_TABLE = "topicConfigTable"

T = TypeVar("T")


class _TopicNames(Struct):
    """The part of ``topics.json`` that names the topics: a hundred thousand are common."""

    table: dict[str, msgspec.Raw] = field(name=_TOPIC_TABLE)


def json_names(listed: Iterable[str]) -> list[str]:
    """Which of a folder's config files hold JSON, backups excluded."""
    names = set(listed)
    names |= {name.removesuffix(BACKUP_SUFFIX) for name in names}
    return sorted(filter(is_json_name, names))


def is_json_name(name: str) -> bool:
    """Whether a config file of this name, not a backup, holds JSON."""
    return name.endswith(_JSON_SUFFIX) or name in _JSON_WITHOUT_SUFFIX


def json_fault(data: bytes | None) -> str | None:
    """Why a config file cannot be read, or ``None``; the file is missing if ``data`` is."""
    if data is None:
        return "is missing, but its backup exists"
    if not data.strip():
        return "is empty"
    try:
        loads(data)
    except JsonSyntaxError as error:
        return error.detail or error.message
    return None


def topic_names(data: bytes | None) -> set[str] | None:
    """Topics that ``topics.json`` names; ``None`` if it cannot be read."""
    try:
        return set(msgspec.json.decode(data or b"", type=_TopicNames).table)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass  # Missing, in fastjson's dialect, or damaged.
    table = _topic_table(data)
    return None if table is None else set(table)


def batch_topic_names(data: bytes | None) -> set[str] | None:
    """Topics that have batch consume queues in ``topics.json``; ``None`` if it cannot be read."""
    table = _topic_table(data)
    if table is None:
        return None
    return {name for name, topic in table.items() if _has_batch_queues(topic)}


def _topic_table(data: bytes | None) -> dict[str, object] | None:
    if data is None:
        return None
    try:
        value = loads(data)
    except JsonSyntaxError:
        return None
    table = value.get(_TOPIC_TABLE) if isinstance(value, dict) else None
    return {str(name): topic for name, topic in table.items()} if isinstance(table, dict) else None


def _has_batch_queues(topic: object) -> bool:
    attributes = topic.get("attributes") if isinstance(topic, dict) else None
    return isinstance(attributes, dict) and TopicConfig(attributes=attributes).has_batch_queues


def decode_table(table_type: type[T], text: str) -> T:
    """Read the text of a table: standard JSON, or fastjson's dialect.

    Unknown members are skipped, and null members count as missing, as upstream reads them.

    Raises:
        ConfigError: The text is not such a table.
    """
    try:
        return msgspec.json.decode(text, type=table_type)
    except (msgspec.MsgspecError, RecursionError):
        pass  # Bare keys, nulls, or really bad: the other reader decides.
    try:
        return msgspec.convert(without_nulls(loads(text)), table_type, strict=False)
    except (JsonSyntaxError, msgspec.MsgspecError) as error:
        reason = error.detail if isinstance(error, JsonSyntaxError) else str(error)
        raise ConfigError(f"The text is no {table_type.__name__}.", detail=reason) from error
