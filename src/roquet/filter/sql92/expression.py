"""Compiled SQL92 expressions, and a cache of recently used ones.

Every pull request may carry an expression, so compiled expressions and errors are cached. The cache
is bounded by the total length of the expressions, because their compiled size grows with it.

Follows upstream's SqlFilter and the cache of its SelectorParser.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from roquet.filter.sql92.errors import Sql92Error, Sql92EvaluationError
from roquet.filter.sql92.evaluator import Condition, Properties, condition
from roquet.filter.sql92.parser import parse

__all__ = ["EXPRESSION_CHARACTERS_MAX", "Sql92Expression", "compile_sql92"]

EXPRESSION_CHARACTERS_MAX: Final = 65_536
"""Compiling one blocks the broker's loop; a list of thousands of elements still fits."""

_REMEMBERED_CHARACTERS_MAX: Final = 4 * EXPRESSION_CHARACTERS_MAX
_REMEMBERED_COST_MIN: Final = 256
"""The least that an expression counts, so that there are not too many short ones."""


class Sql92Expression:
    """A compiled expression, which can be evaluated any number of times.

    :func:`compile_sql92` makes them.

    Attributes:
        text: The expression as written.

    Example:
        >>> paid = compile_sql92("amount > 100 AND region IN ('EU', 'US')")
        >>> paid.matches({"amount": "250", "region": "EU"})
        True
        >>> paid.evaluate({"amount": "250"}) is None
        True
    """

    __slots__ = ("_evaluate", "text")

    def __init__(self, text: str, evaluate: Condition) -> None:
        self.text = text
        self._evaluate = evaluate

    def evaluate(self, properties: Properties) -> bool | None:
        """The value for a message with these properties; ``None`` if unknown.

        Raises:
            Sql92EvaluationError: It compares values that cannot be compared.
        """
        return self._evaluate(properties)

    def matches(self, properties: Properties) -> bool:
        """Whether a consumer gets the message; not if evaluation fails or the value is unknown."""
        try:
            return self._evaluate(properties) is True
        except Sql92EvaluationError:
            return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


def compile_sql92(text: str) -> Sql92Expression:
    """Compile an expression.

    Raises:
        Sql92Error: It is invalid; the message is the one that upstream's clients get.

    Example:
        >>> try:
        ...     compile_sql92("a > 'x'")
        ... except Sql92Error as error:
        ...     print(error.message)
        java.lang.RuntimeException: Value ''x'' cannot be compared.
    """
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise Sql92Error(
            f"The SQL92 expression is longer than {EXPRESSION_CHARACTERS_MAX} characters.",
            code="sql92_too_long",
            detail=f"It has {len(text)}.",
        )
    found = _remembered.get(text)
    if found is None:
        found = _compile(text)
        _remembered.put(text, found)
    if isinstance(found, Sql92Error):
        raise found.again()
    return found


def _compile(text: str) -> Sql92Expression | Sql92Error:
    try:
        return Sql92Expression(text, condition(parse(text)))
    except Sql92Error as error:
        return error.again()


class _Memory:
    """A cache of the results for recently used expressions."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, Sql92Expression | Sql92Error] = OrderedDict()
        self.cost = 0

    def get(self, text: str) -> Sql92Expression | Sql92Error | None:
        found = self._found.get(text)
        if found is not None:
            self._found.move_to_end(text)
        return found

    def put(self, text: str, found: Sql92Expression | Sql92Error) -> None:
        self._found[text] = found
        self.cost += _cost(text)
        while self.cost > _REMEMBERED_CHARACTERS_MAX:
            oldest, _ = self._found.popitem(last=False)
            self.cost -= _cost(oldest)


def _cost(text: str) -> int:
    return max(len(text), _REMEMBERED_COST_MIN)


_remembered = _Memory()
