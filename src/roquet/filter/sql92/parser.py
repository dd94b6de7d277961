"""The grammar of SQL92 expressions.

.. code-block:: text

    selector   = or
    or         = and { OR and }
    and        = equality { AND equality }
    equality   = comparison { "=" comparison | "<>" comparison | IS [NOT] NULL }
    comparison = unary { (">" | ">=" | "<" | "<=") unary
                       | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) string
                       | [NOT] BETWEEN unary AND unary
                       | [NOT] IN "(" string { "," string } ")" }
    unary      = "+" unary | "-" unary | NOT unary | primary
    primary    = string | number | TRUE | FALSE | NULL | name | "(" or ")"

Anything after a selector is ignored. The parser keeps open operators on its own stack and does not
recurse. The errors, and which of two is found first, are those of upstream's SelectorParser; so is
the list of expected tokens, which depends on the position alone.

Upstream looks ahead over the whole operand of a ``+``. A wrong token in it is therefore reported at
the ``+``, and before any other error in the operand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, ParamSpec

from roquet.filter.sql92 import nodes
from roquet.filter.sql92.errors import PARSE_EXCEPTION, Sql92Error, refuse
from roquet.filter.sql92.nodes import NESTING_MAX, OPEN_MAX, OPERATORS_MAX, Node
from roquet.filter.sql92.tokens import IMAGES, Kind, Token, TokenReader, escape, string_value

__all__ = ["parse"]

_P = ParamSpec("_P")

_ORDER: Final = {
    Kind.GREATER: ">",
    Kind.GREATER_EQUAL: ">=",
    Kind.LESS: "<",
    Kind.LESS_EQUAL: "<=",
}
_SEARCHES: Final = (Kind.CONTAINS, Kind.STARTSWITH, Kind.ENDSWITH)
_LITERALS: Final = (Kind.TRUE, Kind.FALSE, Kind.NULL, Kind.DECIMAL, Kind.FLOAT, Kind.STRING)
_AFTER_NOT: Final = (*_SEARCHES, Kind.BETWEEN, Kind.IN)
_COMPARING: Final = frozenset((Kind.NOT, *_AFTER_NOT, *_ORDER))
_TIGHT: Final = frozenset((Kind.PLUS, Kind.MINUS, Kind.NOT, Kind.BETWEEN, *_ORDER))
_EQUALITY: Final = (Kind.IS, Kind.EQUAL, Kind.NOT_EQUAL)

# The expected tokens; in messages, "+" comes last and the others in the order of their kinds.
_OPERAND_OF_PLUS: Final = (Kind.NOT, *_LITERALS, Kind.ID, Kind.OPEN, Kind.MINUS)
_OPERAND: Final = (*_OPERAND_OF_PLUS, Kind.PLUS)
_INFIX_NOT: Final = (*_AFTER_NOT, *_ORDER)
_CLOSE_AFTER_NULL: Final = (Kind.AND, Kind.OR, *_EQUALITY, Kind.CLOSE)
_CLOSE: Final = (*_COMPARING, *_CLOSE_AFTER_NULL)


class _Open(NamedTuple):
    """An operator that waits for its operand, or an open parenthesis.

    Attributes:
        kind: The token that began it.
        left: The left operand.
        low: The lower bound of a ``BETWEEN``, once parsed.
        is_negated: Whether a ``NOT`` belongs to it.
    """

    kind: Kind
    left: Node = nodes.NULL
    low: Node | None = None
    is_negated: bool = False

    @property
    def is_tight(self) -> bool:
        """Whether its operand is just the next unary."""
        return self.kind in _TIGHT


def parse(text: str) -> Node:
    """Parse an expression, and return a condition.

    Raises:
        Sql92Error: It is invalid.
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._reader = TokenReader(text)
        self._next: Token | None = None
        self._open: list[_Open] = []
        self._signs_open = 0
        self._operators = 0
        # The outermost "+" whose operand is not complete, and the first error in that operand.
        self._plus: Token | None = None
        self._plus_level = 0
        self._postponed: Sql92Error | None = None

    def parse(self) -> Node:
        while True:
            node = self._after_operand(self._read_operand())
            if node is not None:
                return nodes.as_boolean(node)

    # ------------------------------------------------------------------------------- words

    def _peek(self) -> Kind:
        if self._next is None:
            self._next = self._reader.read()
        return self._next.kind

    def _take(self) -> Token:
        self._peek()
        token = self._next
        assert token is not None
        self._next = None
        return token

    def _expect(self, kind: Kind, *others: Kind) -> Token:
        if self._peek() != kind:
            raise self._unexpected((kind, *others))
        return self._take()

    def _unexpected(self, expected: Iterable[Kind], token: Token | None = None) -> Sql92Error:
        """The error for an unexpected token, by default the next one."""
        if self._plus is not None:
            token, expected = self._plus, _OPERAND_OF_PLUS
        token = token or self._take()
        found = IMAGES[Kind.EOF]
        if token.kind is not Kind.EOF:
            found = f' {IMAGES[token.kind]} "{escape(token.text)} "'
        line, column = self._reader.place(token.start)
        kinds = sorted(expected, key=_message_order)
        one_of = "" if len(kinds) == 1 else " one of"
        wanted = "".join(f"{IMAGES[kind]} ...\n    " for kind in kinds)
        return refuse(
            PARSE_EXCEPTION,
            f'Encountered "{found}" at line {line}, column {column}.\n'
            f"Was expecting{one_of}:\n    {wanted}",
        )

    # ---------------------------------------------------------------------------- operands

    def _read_operand(self) -> Node:
        """Parse up to the end of a primary, opening signs and parentheses on the way."""
        while True:
            kind = self._peek()
            if kind in _LITERALS:
                return self._build(_literal, self._take())
            if kind is Kind.ID:
                return nodes.Property(self._take().text)
            if kind not in _OPERAND:
                raise self._unexpected(_OPERAND)
            token = self._take()
            if kind is Kind.PLUS and self._plus is None:
                self._plus, self._plus_level = token, len(self._open)
            if kind in (Kind.MINUS, Kind.NOT):
                self._signs_open += 1
                if self._signs_open > NESTING_MAX:
                    raise nodes.too_deep()
            if len(self._open) >= OPEN_MAX:
                raise nodes.too_deep(OPEN_MAX)
            self._open.append(_Open(kind))

    def _build(self, build: Callable[_P, Node], *arguments: _P.args, **options: _P.kwargs) -> Node:
        """Build a node; within the operand of a ``+``, errors are deferred."""
        try:
            return build(*arguments, **options)
        except Sql92Error as error:
            if self._plus is None:
                raise
            if self._postponed is None:
                self._postponed = error
            return nodes.NULL

    def _end_plus(self) -> None:
        if self._plus_level < len(self._open):
            return
        self._plus = None
        if self._postponed is not None:
            raise self._postponed

    # --------------------------------------------------------------------------- operators

    def _after_operand(self, operand: Node) -> Node | None:
        """Continue after an operand; return the selector, or ``None`` if an operand follows."""
        node: Node | None = operand
        while node is not None and (node := self._close_tight(node)) is not None:
            if self._peek() in _COMPARING:
                node = self._compare(node)
                continue
            node = self._close(node, Kind.EQUAL, Kind.NOT_EQUAL)
            # After IS NULL, upstream does not look for comparisons again.
            expected = _CLOSE
            while self._peek() is Kind.IS:
                node = self._test_null(node)
                expected = _CLOSE_AFTER_NULL
            if self._opens(node, Kind.EQUAL, Kind.NOT_EQUAL):
                break
            node = self._close(node, Kind.AND)
            if self._opens(node, Kind.AND):
                break
            node = self._close(node, Kind.OR)
            if self._opens(node, Kind.OR):
                break
            if not self._open:
                return node
            if self._peek() is not Kind.CLOSE:
                raise self._unexpected(expected)
            self._take()
            parenthesis = self._open.pop()
            assert parenthesis.kind is Kind.OPEN
        return None

    def _opens(self, node: Node, *kinds: Kind) -> bool:
        """Take the next token if it is one of these operators; return whether it was."""
        if self._peek() not in kinds:
            return False
        self._count_operator()
        self._open.append(_Open(self._take().kind, node))
        return True

    def _count_operator(self) -> None:
        self._operators += 1
        if self._operators > OPERATORS_MAX:
            raise nodes.too_many_operators()

    def _close(self, right: Node, *kinds: Kind) -> Node:
        """Complete the operator that waits for its right side, if it is one of these."""
        if not self._open or self._open[-1].kind not in kinds:
            return right
        opened = self._open.pop()
        if opened.kind is Kind.AND:
            return self._build(nodes.logic, "&&", opened.left, right)
        if opened.kind is Kind.OR:
            return self._build(nodes.logic, "||", opened.left, right)
        if opened.kind is Kind.NOT_EQUAL:
            return self._build(nodes.not_equal, opened.left, right)
        return self._build(nodes.equal, opened.left, right)

    def _close_tight(self, operand: Node) -> Node | None:
        """Complete signs and comparisons; ``None`` if a second bound is to come."""
        node = operand
        while self._open and self._open[-1].is_tight:
            opened = self._open.pop()
            kind, left = opened.kind, opened.left
            if kind is Kind.PLUS:
                self._end_plus()
            elif kind is Kind.BETWEEN and opened.low is None:
                self._expect(Kind.AND)
                self._open.append(opened._replace(low=node))
                return None
            elif opened.low is not None:
                node = self._build(
                    nodes.between, left, opened.low, node, is_negated=opened.is_negated
                )
            elif kind in _ORDER:
                node = self._build(nodes.ordered, _ORDER[kind], left, node)
            else:
                self._signs_open -= 1
                build = nodes.negation if kind is Kind.MINUS else nodes.negated
                node = self._build(build, node)
        return node

    def _compare(self, left: Node) -> Node | None:
        """Parse a comparison; ``None`` if its right side is to come."""
        self._count_operator()
        token = self._take()
        is_negated = token.kind is Kind.NOT
        if is_negated:
            if self._peek() not in _AFTER_NOT:
                raise self._unexpected(_INFIX_NOT, token)
            token = self._take()
        if token.kind in _SEARCHES:
            text = string_value(self._expect(Kind.STRING))
            return self._build(nodes.search, token.kind.name, left, text, is_negated=is_negated)
        if token.kind is Kind.IN:
            elements = self._elements()
            return self._build(nodes.inclusion, left, elements, is_negated=is_negated)
        self._open.append(_Open(token.kind, left, is_negated=is_negated))
        return None

    def _elements(self) -> list[str]:
        self._expect(Kind.OPEN)
        elements = [string_value(self._expect(Kind.STRING))]
        while self._peek() is Kind.COMMA:
            self._take()
            elements.append(string_value(self._expect(Kind.STRING)))
        self._expect(Kind.CLOSE, Kind.COMMA)
        return elements

    def _test_null(self, operand: Node) -> Node:
        self._count_operator()
        self._take()
        if self._peek() is Kind.NULL:
            self._take()
            return self._build(nodes.is_null, operand)
        self._expect(Kind.NOT, Kind.NULL)
        self._expect(Kind.NULL)
        return self._build(nodes.is_not_null, operand)


def _literal(token: Token) -> Node:
    match token.kind:
        case Kind.DECIMAL:
            return nodes.decimal(token.text)
        case Kind.FLOAT:
            return nodes.floating(token.text)
        case Kind.STRING:
            return nodes.Constant(string_value(token))
        case Kind.NULL:
            return nodes.NULL
        case _:
            return nodes.Constant(token.kind is Kind.TRUE, is_boolean=True)


def _message_order(kind: Kind) -> tuple[bool, Kind]:
    return kind is Kind.PLUS, kind
