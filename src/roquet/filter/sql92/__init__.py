"""Filters by SQL92 expressions over the properties of a message.

:func:`compile_sql92` compiles an expression once; the resulting :class:`Sql92Expression` is then
evaluated for each message. Grammar, values, comparisons and errors are upstream's
(``rocketmq-filter``), with these limits: an expression has at most 65,536 characters and nests at
most 128 levels.
"""

from roquet.filter.sql92.errors import Sql92Error, Sql92EvaluationError
from roquet.filter.sql92.expression import Sql92Expression, compile_sql92

__all__ = ["Sql92Error", "Sql92EvaluationError", "Sql92Expression", "compile_sql92"]
