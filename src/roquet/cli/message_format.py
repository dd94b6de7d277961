r"""What ``roquet tail --format`` understands.

====== ==================================  ====== ==================================
mark   stands for                          mark   stands for
====== ==================================  ====== ==================================
``%t`` the topic                           ``%i`` the message id
``%B`` the broker                          ``%p`` the sender's properties
``%q`` the queue                           ``%s`` when it was stored, in words
``%o`` the queue offset                    ``%S`` the same in milliseconds since 1970
``%k`` the keys                            ``%h`` who sent it
``%g`` the tag                             ``%l`` the length of the body in bytes
``%b`` the body                            ``%%`` a percent sign
====== ==================================  ====== ==================================

``\n``, ``\t`` and ``\\`` are a new line, a tab and a backslash. A line end follows each message.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from roquet.cli.message_line import body_of, own_properties
from roquet.cli.output import format_time, printable
from roquet.client import ReceivedMessage
from roquet.errors import ConfigError

__all__ = ["DEFAULT_FORMAT", "MARKS", "MessageFormat"]

DEFAULT_FORMAT = "%s  %q %o  %g  %k  %b"

Part = Callable[[ReceivedMessage], bytes | str]

_NONE = "-"
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\", "%%": "%"}
_TOKEN = re.compile(r"%.?|\\[nt\\]", re.DOTALL)


def _properties(message: ReceivedMessage) -> str:
    return ",".join(f"{name}={value}" for name, value in own_properties(message).items()) or _NONE


MARKS: dict[str, Part] = {
    "%t": lambda message: message.topic,
    "%B": lambda message: message.broker_name,
    "%q": lambda message: str(message.queue_id),
    "%o": lambda message: str(message.queue_offset),
    "%k": lambda message: " ".join(message.keys) or _NONE,
    "%g": lambda message: message.tags or _NONE,
    "%b": lambda message: body_of(message)[0],
    "%i": lambda message: message.message_id,
    "%p": _properties,
    "%s": lambda message: format_time(message.store_timestamp_ms),
    "%S": lambda message: str(message.store_timestamp_ms),
    "%h": lambda message: str(message.born_host),
    "%l": lambda message: str(len(body_of(message)[0])),
}


class MessageFormat:
    """Formats messages.

    Args:
        text: The format.
        for_terminal: Whether to escape control characters and bytes that are not text; otherwise a
            body is written unchanged.

    Raises:
        ConfigError: The format has an unknown mark.

    Example:
        >>> message = ReceivedMessage(topic="Orders", raw_body=b"paid", queue_id=3, queue_offset=17)
        >>> MessageFormat("%t/%q/%o: %b 100%%", for_terminal=False).line(message)
        b'Orders/3/17: paid 100%'
    """

    def __init__(self, text: str, *, for_terminal: bool) -> None:
        self._for_terminal = for_terminal
        self._parts: list[str | Part] = []
        at = 0
        for match in _TOKEN.finditer(text):
            token = match[0]
            known = _ESCAPES.get(token) or MARKS.get(token)
            if known is None:
                raise ConfigError(
                    f"{token} is not a mark of a format",
                    detail=text,
                    hint=f"There are {' '.join(MARKS)}, and %% for a percent sign.",
                )
            self._parts += [text[at : match.start()], known]
            at = match.end()
        self._parts.append(text[at:])

    def line(self, message: ReceivedMessage) -> bytes:
        """One message, without a line end."""
        return b"".join(
            part.encode() if isinstance(part, str) else self._shown(part(message))
            for part in self._parts
        )

    def _shown(self, value: bytes | str) -> bytes:
        if not self._for_terminal:
            return value if isinstance(value, bytes) else value.encode(errors="replace")
        text = value if isinstance(value, str) else value.decode(errors="backslashreplace")
        return printable(text).encode()
