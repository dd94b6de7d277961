"""Reads a store's ``config`` folder, for pipelines that join it with the log.

Reads ``consumerOffset.json`` and ``subscriptionGroup.json``, in fastjson's dialect, of Roquet or a
Java broker, running or not. A broker replaces these files by renaming, so each read is consistent;
if a file is missing, its backup is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from roquet.errors import NotAStore
from roquet.model.fastjson import JsonKey, JsonSyntaxError, JsonValue, loads

__all__ = ["GroupOffsets", "group_offsets", "read_group_offsets", "read_retries"]

GroupOffsets = dict[tuple[str, str], dict[int, int]]
"""By group and topic: the group's next offset in each queue."""

_BACKUP = ".bak"


def read_group_offsets(store: Path) -> GroupOffsets:
    """Return the committed offsets of consumer groups.

    Raises:
        NotAStore: The file exists but cannot be read.
    """
    table = _read(store / "config" / "consumerOffset.json").get("offsetTable")
    return group_offsets(
        {
            str(key): {
                int(str(queue)): value for queue, value in queues.items() if isinstance(value, int)
            }
            for key, queues in (table.items() if isinstance(table, dict) else ())
            if isinstance(queues, dict)
        }
    )


def group_offsets(table: Mapping[str, dict[int, int]]) -> GroupOffsets:
    """Convert a broker's table, keyed by ``topic@group``, to one by group and topic.

    Example:
        >>> group_offsets({"Orders@billing": {0: 7}, "broken": {}})
        {('billing', 'Orders'): {0: 7}}
    """
    offsets: GroupOffsets = {}
    for key, queues in table.items():
        topic, sign, group = key.partition("@")
        if sign:
            offsets[group, topic] = queues
    return offsets


def read_retries(store: Path) -> dict[str, int]:
    """Return for each group how often the broker allows a message to be retried.

    Raises:
        NotAStore: The file exists but cannot be read.
    """
    table = _read(store / "config" / "subscriptionGroup.json").get("subscriptionGroupTable")
    found: dict[str, int] = {}
    for group, settings in table.items() if isinstance(table, dict) else ():
        times = settings.get("retryMaxTimes") if isinstance(settings, dict) else None
        if isinstance(times, int):
            found[str(group)] = times
    return found


def _read(path: Path) -> dict[JsonKey, JsonValue]:
    backup = path.with_name(path.name + _BACKUP)
    for candidate in (path, backup):
        try:
            text = candidate.read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            continue
        try:
            value = loads(text) if text.strip() else {}
        except JsonSyntaxError as error:
            if candidate is path and backup.exists():
                continue
            raise NotAStore(f"{candidate} cannot be read.", detail=str(error)) from error
        return value if isinstance(value, dict) else {}
    return {}
