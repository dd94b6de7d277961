"""What a stream that cannot be read says.

Spark 4.3 loses an error that is raised while a stream reader is made: its clean-up uses the reader
that is not there and fails itself. Owns the way around: a reader that is made in any case and
raises the error when it is asked for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from roquet.errors import RoquetError
from roquet.spark.plain_errors import plain_errors


def stream_reader(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """What ``make`` makes, or a reader that raises the error that ``make`` raised."""
    try:
        return make()
    except RoquetError as error:
        return RefusedStreamReader(error)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises one error, whatever it is asked for."""

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
