"""The columns of both sources.

Owns their names, order and types, and the choice of columns to read. Spark does not tell a Python
source which columns a query needs, so the user chooses them with ``.schema(...)`` or the option
``columns``; only those are decoded.

Types are written in Spark's syntax (``map<string,string>``), so this module works without Spark.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from roquet.errors import SparkSchemaError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "BODY_BYTES_MAX",
    "COLUMNS",
    "CORRUPT_COLUMN",
    "CORRUPT_COLUMNS",
    "TIMESTAMP_MAX_MS",
    "TIMESTAMP_MIN_MS",
    "arrow_schema",
    "asked_columns",
    "choose_columns",
    "ddl",
    "struct_type",
]

COLUMNS = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "body": "binary",
    "tags": "string",
    "keys": "string",
    "properties": "map<string,string>",
    "msgId": "string",
    "offsetMsgId": "string",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "bornHost": "string",
    "storeHost": "string",
    "physicalOffset": "bigint",
    "storeSize": "int",
    "reconsumeTimes": "int",
    "sysFlag": "int",
    "flag": "int",
    "bodyCrc": "int",
    "preparedTransactionOffset": "bigint",
}
"""The columns that both sources have, in order, with their types."""

CORRUPT_COLUMN = "_corrupt"
"""What is wrong with the bytes of a row, null in a valid one; only in ``rocketmq-log``."""

CORRUPT_COLUMNS = {**COLUMNS, CORRUPT_COLUMN: "string"}
"""All columns that ``rocketmq-log`` has."""

BODY_BYTES_MAX = 256 << 20
"""The maximum size of a decompressed body; tasks have more memory than consumers."""

TIMESTAMP_MIN_MS = -62_135_596_800_000
"""The first millisecond of the year 1, before which Spark has no timestamps."""

TIMESTAMP_MAX_MS = 253_402_300_799_999
"""The last millisecond of the year 9999. A time outside these bounds is null."""


def ddl(names: Iterable[str] = tuple(COLUMNS)) -> str:
    """The schema of these columns as Spark's DDL text.

    Example:
        >>> ddl(["topic", "queueOffset"])
        '`topic` string, `queueOffset` bigint'
    """
    return ", ".join(f"`{name}` {CORRUPT_COLUMNS[name]}" for name in names)


def struct_type(names: Iterable[str] = tuple(COLUMNS)) -> StructType:
    """The schema of these columns as Spark's type; no session is needed."""
    from pyspark.sql import types  # noqa: PLC0415 - Spark is optional here

    made = {
        "string": types.StringType(),
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "binary": types.BinaryType(),
        "timestamp": types.TimestampType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }
    return types.StructType(
        [types.StructField(name, made[CORRUPT_COLUMNS[name]]) for name in names]
    )


def choose_columns(
    wanted: Sequence[str], known: Sequence[str] = tuple(CORRUPT_COLUMNS)
) -> tuple[str, ...]:
    """Return the columns of the option ``columns``, in the source's spelling.

    Args:
        wanted: Names, case-insensitive as in Spark.
        known: The columns that the source has.

    Raises:
        SparkSchemaError: There is no such column, or one is named twice.

    Example:
        >>> choose_columns(["Topic", "queueoffset"])
        ('topic', 'queueOffset')
    """
    spelling = {name.lower(): name for name in known}
    chosen = []
    for name in wanted:
        if name.lower() not in spelling:
            raise _no_column(name, known)
        if spelling[name.lower()] in chosen:
            raise SparkSchemaError(
                f"The column {name!r} is requested twice.", hint="Name each column once."
            )
        chosen.append(spelling[name.lower()])
    return tuple(chosen)


def asked_columns(
    schema: StructType, known: Sequence[str] = tuple(CORRUPT_COLUMNS)
) -> tuple[str, ...]:
    """Return the columns that a reader must return for a schema, in its order.

    Args:
        schema: What Spark expects: the source's own schema or the user's.
        known: The columns that the source has.

    Raises:
        SparkSchemaError: There is no such column, or not of that type.
    """
    for field in schema.fields:
        if field.name not in known:
            raise _no_column(field.name, known)
        found = field.dataType.simpleString()
        if found != CORRUPT_COLUMNS[field.name]:
            raise SparkSchemaError(
                f"The column {field.name!r} is of type {CORRUPT_COLUMNS[field.name]}, not {found}.",
                hint="Use the type that it has, and cast it in the query.",
            )
    return tuple(field.name for field in schema.fields)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the exact Arrow schema that Spark demands of batches with this schema."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - Spark is optional here

    return to_arrow_schema(schema, timezone="UTC")


def _no_column(name: str, known: Sequence[str]) -> SparkSchemaError:
    spelling = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelling, n=1)
    hint = f"Did you mean {spelling[near[0]]!r}?" if near else f"It has: {', '.join(known)}."
    return SparkSchemaError(f"The source has no column {name!r}.", hint=hint)
