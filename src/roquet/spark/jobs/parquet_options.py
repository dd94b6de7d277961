"""How the Parquet files of a lake are written, so that few of them have to be read.

Beside the statistics of every column, each row group gets Bloom filters of ``keys`` and ``msgId``,
which Spark, Trino, DuckDB and ``rocketmq-lake`` ask before they read it. A message may have several
words as KEYS, but a filter has whole values only: the metadata of a file says if all are one word.
"""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = [
    "FILTERED",
    "ONE_WORD",
    "SORTED_GROUP_ROWS",
    "WORDS",
    "by_key",
    "compression_options",
    "file_options",
    "has_one_word",
]

FILTERED = ("keys", "msgId")
"""The columns with Bloom filters."""

WORDS, ONE_WORD = b"roquet.keys", b"one word"
"""In the metadata of a file: no message has more than one word as KEYS."""

SORTED_GROUP_ROWS = 32 << 10
"""The rows of a row group of sorted files: few, because a key is in one of them."""

_FALSE_PART = 0.01
_HAS_FILTERS = "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters


def file_options(rows: int, compression: str, *, is_sorted: bool) -> dict[str, Any]:
    """Return the options of a file's writer.

    Args:
        rows: The number of rows of its first row group.
        compression: The compression.
        is_sorted: Whether rows are in the order of :func:`by_key`.
    """
    options = compression_options(compression)
    if is_sorted:
        rows = min(rows, SORTED_GROUP_ROWS)
    if _HAS_FILTERS:
        filters = {"ndv": max(rows, 1), "fpp": _FALSE_PART}
        options["bloom_filter_options"] = dict.fromkeys(FILTERED, filters)
    return options


def compression_options(compression: str) -> dict[str, Any]:
    """Return the options of a writer for a compression."""
    level = 1 if compression == "zstd" else None
    return {"compression": compression, "compression_level": level}


def by_key(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their keys, and those of a key in the order of the log."""
    return rows.sort_by([("keys", "ascending"), ("physicalOffset", "ascending")])


def has_one_word(keys: pa.Array | pa.ChunkedArray) -> bool:
    """Whether no value has white space.

    Example:
        >>> has_one_word(pa.array(["o1", None])), has_one_word(pa.array(["o1", "o2 o3"]))
        (True, False)
    """
    return not pc.any(pc.match_substring_regex(keys, r"\s")).as_py()
