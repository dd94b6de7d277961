"""Errors of compiling and evaluating SQL92 expressions.

A client that registers a bad expression gets the text of upstream's exception, including the class
name. :attr:`Sql92Error.message` is that text, so a broker responds with it unchanged.
"""

from __future__ import annotations

from roquet.errors import RoquetError

__all__ = [
    "MESSAGE_CHARACTERS_MAX",
    "PARSE_EXCEPTION",
    "RUNTIME_EXCEPTION",
    "Sql92Error",
    "Sql92EvaluationError",
    "refuse",
]

RUNTIME_EXCEPTION = "java.lang.RuntimeException"
PARSE_EXCEPTION = "org.apache.rocketmq.filter.parser.ParseException"

MESSAGE_CHARACTERS_MAX = 16_384
"""Upstream has no limit, and repeats parts of an expression, some of them twice per level."""


class Sql92Error(RoquetError):
    """An expression is invalid; the message is upstream's, with its line breaks."""

    default_code = "bad_sql92_expression"

    def again(self) -> Sql92Error:
        """The same error without this one's traceback."""
        return Sql92Error(self.message, code=self.code, detail=self.detail, hint=self.hint)


class Sql92EvaluationError(RoquetError):
    """An expression has no value for these properties, because Java cannot compare them."""

    default_code = "sql92_evaluation"


def refuse(java_class: str, text: str) -> Sql92Error:
    """The error with the text of upstream's exception of that class."""
    return Sql92Error(
        f"{java_class}: {text}"[:MESSAGE_CHARACTERS_MAX],
        hint="Compare properties with numbers or 'texts'; names are letters, digits, _ and $.",
    )
