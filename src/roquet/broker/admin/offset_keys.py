"""Topics and groups in the keys of committed offsets.

There may be a hundred thousand ``topic@group`` keys, too many to split on the event loop: admin
processors copy the keys there, and search the copy in a thread. Keys of three parts belong to
single broadcast clients, and do not count.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["groups_of_topic", "topics_by_group", "topics_of_group"]

_SEPARATOR = "@"


def topics_of_group(keys: Iterable[str], group: str) -> list[str]:
    """Return the topics of one group, sorted.

    Example:
        >>> topics_of_group(["U@G", "T@G", "T@H", "T@G@client"], "G")
        ['T', 'U']
    """
    tail = f"{_SEPARATOR}{group}"
    topics = (key.removesuffix(tail) for key in keys if key.endswith(tail))
    return sorted(topic for topic in topics if _SEPARATOR not in topic)


def groups_of_topic(keys: Iterable[str], topic: str) -> set[str]:
    """Return the groups of one topic.

    Example:
        >>> sorted(groups_of_topic(["T@G", "T@H", "U@G", "T@G@client"], "T"))
        ['G', 'H']
    """
    head = f"{topic}{_SEPARATOR}"
    groups = (key.removeprefix(head) for key in keys if key.startswith(head))
    return {group for group in groups if _SEPARATOR not in group}


def topics_by_group(keys: Iterable[str]) -> dict[str, list[str]]:
    """Return the topics of all groups.

    Example:
        >>> topics_by_group(["U@G", "T@G", "T@H"])
        {'G': ['U', 'T'], 'H': ['T']}
    """
    topics: dict[str, list[str]] = {}
    for key in keys:
        parts = key.split(_SEPARATOR)
        if len(parts) == 2:
            topics.setdefault(parts[1], []).append(parts[0])
    return topics
