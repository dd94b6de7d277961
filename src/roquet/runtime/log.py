"""Log lines: one record is one line, whatever peers put into it.

Owns the format of a line. Names of topics, groups and clients come from peers and are logged; a
line break in one would let a peer forge lines, and an escape sequence would let it control the
reader's terminal. Both are escaped as in Python strings. Tracebacks are our own and keep their
lines.
"""

from __future__ import annotations

import logging
import re

__all__ = ["LineFormatter"]

# Everything that may move a cursor or end a line: C0, DEL, C1, U+2028 and U+2029; and lone
# surrogates, which no stream can write.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class LineFormatter(logging.Formatter):
    r"""Formats a record as one line.

    Example:
        >>> record = logging.makeLogRecord({"msg": "topic %s", "args": ("a\nb",)})
        >>> LineFormatter("%(message)s").format(record)
        'topic a\\nb'
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line without a traceback."""
        return _UNPRINTABLE.sub(_escaped, super().formatMessage(record))


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
