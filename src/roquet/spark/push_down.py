"""Whether Spark hands the filters of a query to a Python source."""

from __future__ import annotations

import sys

__all__ = ["PUSH_DOWN", "hands_filters"]

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
"""The setting of Spark that makes it do so."""


def hands_filters() -> bool:
    """Whether Spark hands over filters to the reader that it asks for now.

    Spark refuses a reader that takes filters if the setting is off. It asks for the reader in a
    process that exists for this purpose only if it is on.
    """
    return "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules
