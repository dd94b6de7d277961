"""What is refused of an SQL92 expression, and what fails when one is evaluated.

A client that registers a bad expression is told the text of upstream's exception, class name and
all. :attr:`Sql92Error.message` is that text, so a broker answers with it unchanged.
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
"""Upstream repeats parts of an expression without a bound, some of them twice for each level."""


class Sql92Error(RoquetError):
    """An expression is refused; the message is upstream's, with its line breaks."""

    default_code = "bad_sql92_expression"

    def again(self) -> Sql92Error:
        """The same refusal without the traceback of this one."""
        return Sql92Error(self.message, code=self.code, detail=self.detail, hint=self.hint)


class Sql92EvaluationError(RoquetError):
    """An expression has no value for these properties, because Java cannot compare them."""

    default_code = "sql92_evaluation"


def refuse(java_class: str, text: str) -> Sql92Error:
    """The refusal with the text that upstream's exception of that class has."""
    return Sql92Error(
        f"{java_class}: {text}"[:MESSAGE_CHARACTERS_MAX],
        hint="Compare properties with numbers or 'texts'; names are letters, digits, _ and $.",
    )
