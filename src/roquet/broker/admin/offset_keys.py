"""Topics and groups in the names under which offsets are kept.

There may be a hundred thousand of ``topic@group``, too many to be taken apart on the event loop:
what answers administrators copies the names there, and looks through the copy in a thread. Names of
three parts belong to single clients that get all messages, and do not count.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["groups_of_topic", "topics_by_group", "topics_of_group"]

_SEPARATOR = "@"


def topics_of_group(keys: Iterable[str], group: str) -> list[str]:
    """The topics of one group, sorted.

    Example:
        >>> topics_of_group(["U@G", "T@G", "T@H", "T@G@client"], "G")
        ['T', 'U']
    """
    tail = f"{_SEPARATOR}{group}"
    topics = (key.removesuffix(tail) for key in keys if key.endswith(tail))
    return sorted(topic for topic in topics if _SEPARATOR not in topic)


def groups_of_topic(keys: Iterable[str], topic: str) -> set[str]:
    """The groups of one topic.

    Example:
        >>> sorted(groups_of_topic(["T@G", "T@H", "U@G", "T@G@client"], "T"))
        ['G', 'H']
    """
    head = f"{topic}{_SEPARATOR}"
    groups = (key.removeprefix(head) for key in keys if key.startswith(head))
    return {group for group in groups if _SEPARATOR not in group}


def topics_by_group(keys: Iterable[str]) -> dict[str, list[str]]:
    """The topics of all groups.

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
