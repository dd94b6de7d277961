"""The JSON of topics, built from templates.

Owns the templates: nearly all topics of a broker differ only in their names, so the text of one
serves for all others of its shape. A hundred thousand topics are written to the file, to name
servers and to administrators, and encoding each separately would take seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from roquet.model.fastjson import dumps
from roquet.model.topic_config import TopicConfig

__all__ = ["TopicTexts"]

TEMPLATES_MAX = 1_024

_MARK = "%NAME-OF-TOPIC%"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9%|_.-]+")
"""Names that need no escaping in JSON."""

_Shape = tuple[tuple[tuple[str, str], ...], bool, int, int, str, int, int]


class TopicTexts:
    """Encodes topics as members of a map.

    Args:
        write: Encodes one topic.

    Example:
        >>> texts = TopicTexts(lambda topic: dumps(msgspec.to_builtins(topic)))
        >>> texts.member("T", TopicConfig(topic_name="T"))[:30]
        b'"T":{"attributes":{},"order":f'
    """

    def __init__(self, write: Callable[[TopicConfig], str]) -> None:
        self._write = write
        self._templates: dict[_Shape, tuple[str, ...]] = {}

    def member(self, name: str, topic: TopicConfig) -> bytes:
        """Encode the name of a topic, a colon, and the topic."""
        quoted = f'"{name}"' if _PLAIN_NAME.fullmatch(name) else dumps(name)
        shape = (
            tuple(topic.attributes.items()),
            topic.order,
            topic.perm,
            topic.read_queue_nums,
            topic.topic_filter_type,
            topic.topic_sys_flag,
            topic.write_queue_nums,
        )
        template = self._templates.get(shape)
        if template is None:
            template = self._template(shape, topic)
        if topic.topic_name != name or len(template) != 2:
            return f"{quoted}:{self._write(topic)}".encode()
        return f"{quoted}:{template[0]}{quoted}{template[1]}".encode()

    def _template(self, shape: _Shape, topic: TopicConfig) -> tuple[str, ...]:
        """Return the text before and after the name, if the name occurs once."""
        if len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        text = self._write(msgspec.structs.replace(topic, topic_name=_MARK))
        template = self._templates[shape] = tuple(text.split(f'"{_MARK}"'))
        return template
