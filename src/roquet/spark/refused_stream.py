"""Raises the error of a stream that cannot be read.

Spark 4.3 loses an error raised while it creates a stream reader: its clean-up uses the missing
reader and fails itself. The workaround: a reader that can always be created and raises the error
when any method is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from roquet.errors import RoquetError
from roquet.spark.plain_errors import plain_errors


def stream_reader(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """Return the result of ``make``, or a reader that raises the error of ``make``."""
    try:
        return make()
    except RoquetError as error:
        return RefusedStreamReader(error)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises one error from every method."""

    def __init__(self, error: RoquetError) -> None:
        """Keep the error."""
        self._error = error

    def _refuse(self) -> NoReturn:
        with plain_errors():
            raise self._error
        raise AssertionError("an error passes")

    def initialOffset(self) -> dict[str, int]:
        """Raise."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        """Raise."""
        self._refuse()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002
        """Raise."""
        self._refuse()

    def partitions(
        self,
        start: dict[str, int],  # noqa: ARG002
        end: dict[str, int],  # noqa: ARG002
    ) -> Sequence[InputPartition]:
        """Raise."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:  # noqa: ARG002
        """Raise."""
        self._refuse()
