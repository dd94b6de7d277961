"""Messages as DataFrames, with the columns and the filter that a query needs handed to the source.

Spark does not tell a Python source which columns a query uses, and hands over filters only with a
setting. Both functions here see to that, in any session: :func:`read_log` for the files of a store,
:func:`read_topics` for topics of a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roquet.errors import SparkOptionError
from roquet.spark import register
from roquet.spark.push_down import PUSH_DOWN
from roquet.spark.schema import COLUMNS, CORRUPT_COLUMNS, choose_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

__all__ = ["read_log", "read_topics"]

_WORD = re.compile(r"\w+")


def read_log(
    spark: SparkSession,
    store: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | Column | None = None,
    **options: str,
) -> DataFrame:
    """Read the files of a store, only what a query needs of them.

    Args:
        spark: A session. If it does not hand filters to Python sources, it does from now on.
        store: The store directory, its ``commitlog``, or a segment file.
        columns: The columns of the result; ``None`` for all. The filter may use others.
        where: A filter, as for ``DataFrame.where``.
        options: Options of ``rocketmq-log``.

    Returns:
        The rows for which the filter is true.

    Raises:
        SparkSchemaError: There is no such column.
        SparkOptionError: An option is given twice.

    Example:
        .. code-block:: python

            paid = read_log(spark, "/data/store", columns=["keys", "body"],
                            where="topic = 'Orders' AND tags = 'paid'")
    """
    reader = spark.read.format("rocketmq-log")
    return _read(spark, reader, tuple(CORRUPT_COLUMNS), columns, where, options, store)


def read_topics(
    spark: SparkSession,
    namesrv: str,
    topics: str | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    where: str | Column | None = None,
    **options: str,
) -> DataFrame:
    """Read topics through brokers, only what a query needs of them.

    Args:
        spark: A session. If it does not hand filters to Python sources, it does from now on.
        namesrv: Name servers as ``host:port``, separated by semicolons.
        topics: Names of topics.
        columns: The columns of the result; ``None`` for all. The filter may use others.
        where: A filter, as for ``DataFrame.where``.
        options: Options of ``rocketmq``.

    Returns:
        The rows for which the filter is true.

    Raises:
        SparkSchemaError: There is no such column.
        SparkOptionError: An option is given twice.
    """
    names = topics if isinstance(topics, str) else ",".join(topics)
    reader = spark.read.format("rocketmq").option("namesrv", namesrv).option("subscribe", names)
    return _read(spark, reader, tuple(COLUMNS), columns, where, options, None)


def _read(  # noqa: PLR0917 - what both have in common
    spark: SparkSession,
    reader: DataFrameReader,
    known: Sequence[str],
    columns: Sequence[str] | None,
    where: str | Column | None,
    options: dict[str, str],
    path: str | None,
) -> DataFrame:
    if any(name.lower() == "columns" for name in options):
        raise SparkOptionError("The columns are given twice.", hint="Use the argument columns.")
    register(spark)
    if str(spark.conf.get(PUSH_DOWN, "false")).lower() != "true":
        spark.conf.set(PUSH_DOWN, "true")
    wanted = tuple(COLUMNS) if columns is None else choose_columns(columns, known)
    needed = [*wanted, *(each for each in mentioned(where, known) if each not in wanted)]
    frame = reader.options(**options).option("columns", ",".join(needed)).load(path)
    if where is not None:
        frame = frame.where(where)
    return frame if len(needed) == len(wanted) else frame.select(*wanted)


def mentioned(where: str | Column | None, known: Sequence[str]) -> list[str]:
    """Return the columns that a filter may use: those whose names are anywhere in it."""
    if where is None:
        return []
    text = str(where)
    if not isinstance(where, str) and "..." in text:
        return list(known)  # Spark shortens long expressions
    words = {word.lower() for word in _WORD.findall(text)}
    return [each for each in known if each.lower() in words]
