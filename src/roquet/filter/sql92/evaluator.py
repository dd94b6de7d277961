"""Compiles parsed SQL92 expressions to functions.

Each node becomes one function of a message's properties; what depends on the expression alone is
evaluated here, once. A function returns what ``evaluate`` of upstream's node returns, or raises
:class:`Sql92EvaluationError` where that throws: Java refuses to compare, say, ``'x'`` with 5, and
the whole expression then has no value, even if the other side of an OR is true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from roquet.filter.sql92.errors import Sql92EvaluationError
from roquet.filter.sql92.java_values import (
    ClassCastError,
    Number,
    NumberFormatError,
    Value,
    compare,
    compare_doubles,
    is_integer_class,
    parse_double,
    parse_whole,
)
from roquet.filter.sql92.nodes import (
    Between,
    Cast,
    Comparison,
    Constant,
    Inclusion,
    Logic,
    Negation,
    Node,
    Not,
    Property,
    Search,
)

__all__ = ["Condition", "Properties", "condition"]

Properties: TypeAlias = Mapping[str, str]
Condition: TypeAlias = Callable[[Properties], bool | None]
_Getter: TypeAlias = Callable[[Properties], Value]

_TESTS: Final[dict[str, Callable[[int], bool]]] = {
    "==": lambda order: order == 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}

_MIRRORED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">="}

_SEARCHES: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def condition(node: Node) -> Condition:
    """The function of a node that is a condition."""
    match node:
        case Logic():
            return _logic(node)
        case Not(operand):
            return _not(condition(operand))
        case Comparison("==", left, Constant(None)):
            return _is_null(_getter(left))
        case Comparison("==", left, right):
            return _equality(left, right)
        case Comparison(operator, left, right):
            return _comparison(operator, left, right)
        case Between():
            return _between(node)
        case Search():
            return _search(node)
        case Inclusion():
            return _inclusion(node)
        case Cast(operand):
            return _cast(operand.name)
        case Constant(value) if value is None or isinstance(value, bool):
            return lambda _: value
        case _:
            raise AssertionError(f"{type(node).__name__} is no condition")


def _getter(node: Node) -> _Getter:
    """The function of a node that is a value."""
    match node:
        case Property(name):
            return _property(name)
        case Constant(value):
            return _constant(value)
        case Negation():
            return _negation(node)
        case _:
            return condition(node)


def _property(name: str) -> _Getter:
    return lambda properties: properties.get(name)


def _constant(value: Value) -> _Getter:
    return lambda _: value


def _negation(node: Negation) -> _Getter:
    number = _number(node)
    if number is not None:
        return _constant(number)
    operand = _getter(node.operand)

    def evaluate(properties: Properties) -> None:
        # Only numbers can be negated, and constants are folded by now; but evaluation may fail.
        operand(properties)

    return evaluate


def _number(node: Node) -> Number | None:
    """The value of a node that is a constant number; otherwise ``None``."""
    is_negative = False
    while isinstance(node, Negation):
        is_negative = not is_negative
        node = node.operand
    if not isinstance(node, Constant):
        return None
    value = node.value
    if value is None or isinstance(value, bool | str):
        return None
    return -value if is_negative else value


def _logic(node: Logic) -> Condition:
    terms = [condition(term) for term in _chain(node)]
    decisive = node.operator == "||"

    def evaluate(properties: Properties) -> bool | None:
        is_unknown = False
        for term in terms:
            value = term(properties)
            if value is decisive:
                return decisive
            if value is None:
                is_unknown = True
        return None if is_unknown else not decisive

    return evaluate


def _chain(node: Logic) -> list[Node]:
    """The conditions in a chain of one operator, from left to right."""
    terms: list[Node] = []
    waiting: list[Node] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Logic) and part.operator == node.operator:
            waiting += (part.right, part.left)
        else:
            terms.append(part)
    return terms


def _not(operand: Condition) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def _is_null(operand: _Getter) -> Condition:
    return lambda properties: operand(properties) is None


def _equality(left: Node, right: Node) -> Condition:
    if isinstance(left, Property):
        if isinstance(right, Constant) and isinstance(right.value, str):
            return _property_is(left.name, right.value)
        number = _number(right)
        if number is not None:
            return _property_and_number("==", left.name, number)
    get_left, get_right = _getter(left), _getter(right)

    def evaluate(properties: Properties) -> bool | None:
        left_value, right_value = get_left(properties), get_right(properties)
        if left_value is None:
            return True if right_value is None else None
        if right_value is None:
            return False
        return _compare(left_value, right_value) == 0

    return evaluate


def _property_is(name: str, text: str) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else value == text

    return evaluate


def _property_and_number(operator: str, name: str, number: Number) -> Condition:
    test = _TESTS[operator]
    if isinstance(number, float):
        return _property_and_double(test, name, number)
    as_integer = is_integer_class(number)

    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        try:
            value = parse_whole(text, as_integer=as_integer)
        except NumberFormatError as error:
            raise _failed(error) from None
        return test((value > number) - (value < number))

    return evaluate


def _property_and_double(test: Callable[[int], bool], name: str, number: float) -> Condition:
    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        if text is None:
            return None
        try:
            return test(compare_doubles(parse_double(text), number))
        except NumberFormatError as error:
            raise _failed(error) from None

    return evaluate


def _comparison(operator: str, left: Node, right: Node) -> Condition:
    number = _number(right)
    if isinstance(left, Property) and number is not None:
        return _property_and_number(operator, left.name, number)
    number = _number(left)
    if isinstance(right, Property) and number is not None:
        return _property_and_number(_MIRRORED[operator], right.name, number)
    test = _TESTS[operator]
    get_left, get_right = _getter(left), _getter(right)

    def evaluate(properties: Properties) -> bool | None:
        left_value = get_left(properties)
        if left_value is None:
            return None
        right_value = get_right(properties)
        if right_value is None:
            return None
        if isinstance(left_value, str) and isinstance(right_value, str):
            return test(_compare_numeric_texts(left_value, right_value))
        return test(_compare(left_value, right_value))

    return evaluate


def _between(node: Between) -> Condition:
    operand = node.operand
    if not isinstance(operand, Property) and _number(operand) is None:
        # It is null, and so are both comparisons. Upstream evaluates it for each of them, which
        # takes exponential time for deeply nested operands.
        get = _getter(operand)

        def evaluate(properties: Properties) -> None:
            get(properties)

        return evaluate
    low_operator, joint, high_operator = ("<", "||", ">") if node.negated else (">=", "&&", "<=")
    low = Comparison(low_operator, operand, node.low, node.depth)
    high = Comparison(high_operator, operand, node.high, node.depth)
    return _logic(Logic(joint, low, high, node.depth))


def _search(node: Search) -> Condition:
    text, negated = node.text, node.negated
    if not text:
        return lambda _: False
    get = _getter(node.operand)
    finds = _SEARCHES[node.operator]

    def evaluate(properties: Properties) -> bool:
        value = get(properties)
        return isinstance(value, str) and finds(value, text) is not negated

    return evaluate


def _inclusion(node: Inclusion) -> Condition:
    name, negated = node.operand.name, node.negated
    elements = frozenset(node.elements)

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in elements) is not negated

    return evaluate


def _cast(name: str) -> Condition:
    return lambda properties: None if properties.get(name) is None else False


def _compare(left: Value, right: Value) -> int:
    try:
        return compare(left, right)
    except (ClassCastError, NumberFormatError) as error:
        raise _failed(error) from None


def _compare_numeric_texts(left: str, right: str) -> int:
    """Compare two texts, which are ordered only if both are numbers."""
    try:
        return compare_doubles(parse_double(left), parse_double(right))
    except NumberFormatError as error:
        raise _failed(error) from None


def _failed(error: Exception) -> Sql92EvaluationError:
    return Sql92EvaluationError(
        "The SQL92 expression compares values that cannot be compared.", detail=str(error)
    )
