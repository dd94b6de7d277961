"""SQL92 expressions that are too rare among random ones."""

from __future__ import annotations

# Constants of every kind, and a few other parts, to be put against each other.
OPERANDS = (
    "NULL", "TRUE", "FALSE", "'x'", "'5'", "''", "'true'", "'5.5'", "5", "7", "-5", "2147483648",
    "-2147483648", "9223372036854775807", "5.5", "1e7", "-0.001", "123456.75", "1.25e20", "a",
    "(a = 1)",
)  # fmt: skip
OPERATORS = ("=", "<>", ">", ">=", "<", "<=")

_LONG_LIST = ", ".join(f"'{number}'" for number in range(100))
_LONG = "a = 5 OR " * 700

_BLANKS_AND_COMMENTS = """
a = --5
a = - -5
a = 5 --
--
a=5/**/AND/**/b=5
a = /* x
/
/*
/*/
/**
'
''
'''
a = 'x'''
a = ''''
a = .
a = .x
a = ./
"""

_LISTS = """
a IN ('e', 'd', 'c', 'b', 'a') > 1
a IN ('d', 'c', 'b', 'a') > 1
a IN ('b', 'b', 'b', 'b', 'a', 'b') > 1
a IN ()
a IN ('x',)
a IN 'x'
a IN (5)
a IN ('x' 'y')
a NOT IN ('x', 5)
(a) IN ('x')
+a IN ('5')
-a IN ('5')
"""

_UNFINISHED = """
a IS
a IS NOT
a IS 5
a IS NOT 5
(a IS NULL > 5)
a IS NULL > 5
(a IS NULL IS x)
a NOT
a NOT NOT
a NOT x
a NOT #
a BETWEEN 1
a BETWEEN 1 OR 2
a BETWEEN 5 AND
a CONTAINS
a CONTAINS 5
+
+ +
+(a
+(a b)
+ + a
+ + (a
+(a > 'x')
+(a > 'x'
+(a > 'x' #
+('x' > +(a
+(a = 1) = +(b > 'x')
a = +
a = +(
+a > 'x' +(
+99999999999999999999
+(99999999999999999999
a AND 5
5 AND (
"""

_TRAILING = """
a = 1 b
a = 1)
a = 0123
a = 5 5
a == 5
a != 5
a = 5;
a = 5 #
a = 5 b #
a = 1E5L
a = 1LL
"""

_MIXED = """
a BETWEEN 1 AND 9 AND b
a BETWEEN 1 AND 9 BETWEEN 1 AND 9
- (a BETWEEN 1 AND 9) BETWEEN 1 AND 9
-(TRUE = a) BETWEEN 1 AND 9 OR TRUE
-(TRUE = a) = 5 OR TRUE
5 BETWEEN a AND b
5.5 NOT BETWEEN a AND c
a BETWEEN b AND c
a CONTAINS 'b' CONTAINS 'c'
-a CONTAINS 'b'
(TRUE = a) CONTAINS ''
(TRUE = a) CONTAINS 'x'
'abc' CONTAINS 'b'
5 CONTAINS '5'
TRUE STARTSWITH 't'
NULL ENDSWITH 'l'
a = b = c
a <> b <> TRUE
a = (b = c)
(a = 5) = 'true'
(a = 5) = 5
5 = (a = 5)
a = -a
-a > 5
-'x' > 5
5 > -'5'
- - - a = 5
NOT NOT NOT a
NOT a = 5
NOT (a = 5)
NOT 5
+a
TRUE
FALSE
NULL
a
'a'
5
5.5
-5
NOT NULL
NULL OR TRUE
NULL AND FALSE
5 OR 5
a OR 5.5E300
1e22 OR a
1.0E-5 AND a
100.0 AND a
12345678.9 AND a
a OR (b OR (c OR TRUE))
a AND (b AND (c AND FALSE))
a = 'x' OR b > 5 OR TRUE
TRUE OR a > 5
FALSE AND a > 5
😀
a = '😀' ?
a = '😀' AND
'😀' > 5
$ = 5 OR _ = 5 OR $_1 = 5
TRUEx OR INx OR x
"""

RARE = (
    "", " ", "\n", "\t\ta #", "a = 1\r\n\t#x", "a\n\n= ", "\r\r\nx = ?y", "a = 'x\n", "a = 'x\r",
    ".\n", "a --\n = 5", "a = -- 5\n 6", "a = 5 --\r\nAND b", "\x00", "a = 'x\x00\x07",
    f"{_LONG}b = 5", f"{_LONG}?", f"{_LONG}?x", f"{_LONG}(", f"{_LONG}'x", f"{_LONG}'x' AND",
    f"a IN ({_LONG_LIST})", f"a IN ({_LONG_LIST}) > 5", f"(a IN ({_LONG_LIST}, 'x')) < 5",
    f"{'(' * 100}a = 5{')' * 100}", f"{'- ' * 100}5 = a", f"{'NOT ' * 100}(a = 5)",
    *(
        line
        for part in (_BLANKS_AND_COMMENTS, _LISTS, _UNFINISHED, _TRAILING, _MIXED)
        for line in part.strip().splitlines()
    ),
)  # fmt: skip


def compared_operands() -> list[str]:
    """Every two operands with each operator between, and as bounds."""
    pairs = [(left, right) for left in OPERANDS for right in OPERANDS]
    compared = [f"{left} {operator} {right}" for operator in OPERATORS for left, right in pairs]
    words = ("BETWEEN", "NOT BETWEEN")
    bounds = [f"a {word} {low} AND {high}" for word in words for low, high in pairs]
    return [*compared, *bounds, *(f"a {operator} b" for operator in OPERATORS)]
