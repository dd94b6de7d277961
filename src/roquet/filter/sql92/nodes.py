"""The nodes of an SQL92 expression, their validation, and how upstream prints them.

The functions that build nodes refuse what upstream's expression classes refuse, with the same
text. Nodes know their depth: none deeper than ``NESTING_MAX`` is built, so that code that walks an
expression may recurse. A chain of ANDs, or of ORs, is one level however long it is.

Follows upstream's ComparisonExpression, UnaryExpression, LogicExpression, ConstantExpression and
PropertyExpression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from roquet.filter.sql92.errors import (
    MESSAGE_CHARACTERS_MAX,
    PARSE_EXCEPTION,
    RUNTIME_EXCEPTION,
    Sql92Error,
    refuse,
)
from roquet.filter.sql92.java_values import (
    ClassCastError,
    NumberFormatError,
    Value,
    compare,
    double_text,
    parse_double,
    parse_whole,
    value_text,
)
from roquet.model.java_string import java_hash

__all__ = [
    "NESTING_MAX",
    "NULL",
    "OPEN_MAX",
    "OPERATORS_MAX",
    "Between",
    "Cast",
    "Comparison",
    "Constant",
    "Inclusion",
    "Logic",
    "Negation",
    "Node",
    "Not",
    "Property",
    "Search",
    "as_boolean",
    "between",
    "decimal",
    "equal",
    "floating",
    "inclusion",
    "is_not_null",
    "is_null",
    "logic",
    "negated",
    "negation",
    "not_equal",
    "ordered",
    "search",
    "too_deep",
    "too_many_operators",
]

NESTING_MAX: Final = 128

OPEN_MAX: Final = 1_024
"""How many parentheses and signs may be open at once; they cost nothing once parsed."""

OPERATORS_MAX: Final = 2_048
"""Each one may have to search a property of 32 KiB, for every message."""

_DOUBLE_MAX_TEXT: Final = "1.7976931348623157E308"
_DOUBLE_MIN_TEXT: Final = "4.9E-324"
_HASHED_ELEMENTS_MIN: Final = 5
"""From this many elements on, upstream keeps a list as a HashSet."""


class Constant(Struct, frozen=True):
    """A literal in the expression.

    Attributes:
        value: The value.
        is_boolean: Whether it is TRUE, FALSE or NULL, which are conditions too.
    """

    value: Value
    is_boolean: bool = False
    depth: int = 1


class Property(Struct, frozen=True):
    """A property of the message."""

    name: str
    depth: int = 1


class Negation(Struct, frozen=True):
    """``- operand``: null unless it is a number."""

    operand: Node
    depth: int


class Not(Struct, frozen=True):
    """``NOT operand``."""

    operand: Node
    depth: int


class Cast(Struct, frozen=True):
    """A property used as a condition: properties are strings, so it is never true."""

    operand: Property
    depth: int = 2


class Comparison(Struct, frozen=True):
    """Two values and one of ``== > >= < <=``."""

    operator: str
    left: Node
    right: Node
    depth: int


class Between(Struct, frozen=True):
    """``operand [NOT] BETWEEN low AND high``.

    Upstream builds two comparisons that share the operand, and evaluates it twice.
    """

    operand: Node
    low: Node
    high: Node
    negated: bool
    depth: int


class Search(Struct, frozen=True):
    """``operand [NOT] CONTAINS | STARTSWITH | ENDSWITH 'text'``."""

    operator: str
    operand: Node
    text: str
    negated: bool
    depth: int


class Inclusion(Struct, frozen=True):
    """``property [NOT] IN ('text', …)``."""

    operand: Property
    elements: tuple[str, ...]
    negated: bool
    depth: int = 2


class Logic(Struct, frozen=True):
    """Two conditions joined by ``&&`` or ``||``."""

    operator: str
    left: Node
    right: Node
    depth: int


Node: TypeAlias = (
    Constant | Property | Negation | Not | Cast | Comparison | Between | Search | Inclusion | Logic
)

NULL: Final = Constant(None, is_boolean=True)


def decimal(text: str) -> Constant:
    """A whole number, optionally with an L suffix."""
    digits = text.rstrip("lL")
    try:
        return Constant(parse_whole(digits, as_integer=False))
    except NumberFormatError as error:
        raise refuse("java.lang.NumberFormatException", str(error)) from None


def floating(text: str) -> Constant:
    """A number with a point or an exponent; zero is refused as too small."""
    value = parse_double(text)
    if value == float("inf"):
        raise refuse(RUNTIME_EXCEPTION, f"{text} is greater than {_DOUBLE_MAX_TEXT}")
    if value == 0:
        raise refuse(RUNTIME_EXCEPTION, f"{text} is less than {_DOUBLE_MIN_TEXT}")
    return Constant(value)


def negation(operand: Node) -> Node:
    """``- operand``."""
    return Negation(operand, _above(operand))


def as_boolean(node: Node) -> Node:
    """A node as a condition; a property becomes one."""
    if isinstance(node, Property):
        return Cast(node)
    if _is_boolean(node):
        return node
    raise refuse(PARSE_EXCEPTION, f"Expression will not result in a boolean value: {_render(node)}")


def negated(operand: Node) -> Node:
    """``NOT operand``, of anything that can be a condition."""
    condition = as_boolean(operand)
    return Not(condition, _above(condition))


def logic(operator: str, left: Node, right: Node) -> Node:
    """``left && right`` or ``left || right``, of anything that can be a condition."""
    conditions = as_boolean(left), as_boolean(right)
    depths = [
        # A chain of the same operator is walked in a loop.
        node.depth if isinstance(node, Logic) and node.operator == operator else node.depth + 1
        for node in conditions
    ]
    return Logic(operator, *conditions, _checked(max(depths)))


def equal(left: Node, right: Node) -> Node:
    """``left = right``."""
    for operand in (left, right):
        if isinstance(operand, Constant) and operand.value is None:
            raise refuse(RUNTIME_EXCEPTION, f"'{_render(operand)}' cannot be compared.")
    are_constants = isinstance(left, Constant) and isinstance(right, Constant)
    if are_constants and _is_boolean(left) and not _is_boolean(right):
        raise refuse(
            RUNTIME_EXCEPTION, f"'{_render(left)}' cannot be compared with '{_render(right)}'"
        )
    return Comparison("==", left, right, _above(left, right))


def not_equal(left: Node, right: Node) -> Node:
    """``left <> right``."""
    return negated(equal(left, right))


def is_null(operand: Node) -> Node:
    """``operand IS NULL``."""
    return Comparison("==", operand, NULL, _above(operand))


def is_not_null(operand: Node) -> Node:
    """``operand IS NOT NULL``."""
    return negated(is_null(operand))


def ordered(operator: str, left: Node, right: Node) -> Node:
    """``left > right`` and similar comparisons."""
    _check_ordered(left)
    _check_ordered(right)
    return Comparison(operator, left, right, _above(left, right))


def between(operand: Node, low: Node, high: Node, *, is_negated: bool) -> Node:
    """``operand [NOT] BETWEEN low AND high``; the bounds must be in order, except with NOT."""
    if not is_negated and isinstance(low, Constant) and isinstance(high, Constant):
        _check_bounds(low.value, high.value)
    for part in (operand, low, high):
        _check_ordered(part)
    return Between(operand, low, high, is_negated, _above(operand, low, high))


def search(operator: str, operand: Node, text: str, *, is_negated: bool) -> Node:
    """``operand [NOT] CONTAINS 'text'`` and similar searches."""
    return Search(operator, operand, text, is_negated, _above(operand))


def inclusion(operand: Node, elements: Sequence[str], *, is_negated: bool) -> Node:
    """``property [NOT] IN ('text', …)``."""
    if not isinstance(operand, Property):
        raise refuse(
            RUNTIME_EXCEPTION,
            f"Expected a property for In expression, got: {_render(operand)}",
        )
    return Inclusion(operand, tuple(elements), is_negated)


def _is_boolean(node: Node) -> bool:
    if isinstance(node, Constant):
        return node.is_boolean
    return not isinstance(node, Property | Negation)


def _check_ordered(node: Node) -> None:
    is_number = isinstance(node, Constant) and type(node.value) in {int, float}
    if not is_number and (isinstance(node, Constant) or _is_boolean(node)):
        raise refuse(RUNTIME_EXCEPTION, f"Value '{_render(node)}' cannot be compared.")


def _check_bounds(low: Value, high: Value) -> None:
    if low is None or high is None:
        raise refuse(RUNTIME_EXCEPTION, "Illegal values of between, values can not be null!")
    try:
        order = compare(high, low)
    except NumberFormatError as error:
        raise refuse(RUNTIME_EXCEPTION, f"java.lang.NumberFormatException: {error}") from None
    except ClassCastError as error:
        raise refuse("java.lang.ClassCastException", str(error)) from None
    if order < 0:
        raise refuse(
            RUNTIME_EXCEPTION,
            f"Illegal values of between, left value({value_text(low)}) must less than or equal "
            f"to right value({value_text(high)})",
        )


def _above(*nodes: Node) -> int:
    return _checked(1 + max(node.depth for node in nodes))


def _checked(depth: int) -> int:
    if depth > NESTING_MAX:
        raise too_deep()
    return depth


def too_deep(levels: int = NESTING_MAX) -> Sql92Error:
    """The error for expressions that nest too deep; upstream's parser overflows its stack later."""
    return Sql92Error(
        f"The SQL92 expression nests deeper than {levels} levels.",
        code="sql92_too_deep",
        hint="Long chains of AND or OR without parentheses are fine; IN takes long lists.",
    )


def too_many_operators() -> Sql92Error:
    """The error for expressions that take too long to evaluate."""
    return Sql92Error(
        f"The SQL92 expression has more than {OPERATORS_MAX} operators.",
        code="sql92_too_many_operators",
        hint="IN takes long lists.",
    )


def _render(node: Node) -> str:
    """``toString`` of upstream's expression, truncated beyond what messages show."""
    texts: list[str] = []
    length = 0
    waiting: list[str | Node] = [node]
    while waiting and length < MESSAGE_CHARACTERS_MAX:
        part = waiting.pop()
        if isinstance(part, str):
            texts.append(part)
            length += len(part)
        else:
            waiting.extend(reversed(_parts(part)))
    return "".join(texts)


def _parts(node: Node) -> Sequence[str | Node]:
    match node:
        case Constant(value):
            return (_constant_text(value),)
        case Property(name):
            return (name,)
        case Cast(operand):
            return (operand,)
        case Negation(operand):
            return ("(- ", operand, ")")
        case Not(operand):
            return ("(NOT ", operand, ")")
        case Comparison(operator, left, right) | Logic(operator, left, right):
            return ("(", left, f" {operator} ", right, ")")
        case Between(operand, low, high, is_negated):
            first, joint, second = ("<", "||", ">") if is_negated else (">=", "&&", "<=")
            head = ("((", operand, f" {first} ", low, ")")
            return (*head, f" {joint} (", operand, f" {second} ", high, "))")
        case Search(operator, operand, _, is_negated):
            return (f"({'NOT ' if is_negated else ''}{operator} ", operand, ")")
        case Inclusion(operand, elements, is_negated):
            word = "NOT IN" if is_negated else "IN"
            return (operand, f" {word} ( {', '.join(_in_java_order(elements))} )")


def _constant_text(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return double_text(value) if isinstance(value, float) else str(value)


def _in_java_order(elements: Sequence[str]) -> Sequence[str]:
    """The elements in the order of upstream's list, or of its HashSet if there are many."""
    if len(elements) < _HASHED_ELEMENTS_MIN:
        return elements
    buckets = 16
    while buckets < int(len(elements) / 0.75) + 1:
        buckets *= 2

    def bucket(element: str) -> int:
        spread = java_hash(element) & 0xFFFFFFFF
        return (spread ^ spread >> 16) & buckets - 1

    return sorted(dict.fromkeys(elements), key=bucket)
