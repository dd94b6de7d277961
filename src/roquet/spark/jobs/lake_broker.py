"""Whose log a lake holds, where the command does not say."""

from __future__ import annotations

from roquet.spark.jobs.lake import Lake

__all__ = ["DEFAULT_BROKER", "only_broker"]

DEFAULT_BROKER = "log"
"""The name under which a log is archived if none is given."""


def only_broker(lake: str) -> str:
    """Return the broker of a Parquet lake that holds the log of one.

    Args:
        lake: The lake's address.

    Returns:
        Its name; the default name for a lake of several brokers, or of none.
    """
    names = list(Lake(lake).broker_names())
    return names[0] if len(names) == 1 else DEFAULT_BROKER
