"""The data source ``rocketmq``.

The entry point for Spark: names, columns and options. Options are checked when a DataFrame is
created, before anything is planned.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from roquet.spark.broker.read_options import SOURCE, read_options
from roquet.spark.broker.reader import BrokerReader, FilteringBrokerReader
from roquet.spark.broker.sink import BrokerStreamWriter, BrokerWriter, check_topic_is_there
from roquet.spark.broker.stream import BrokerStreamReader
from roquet.spark.broker.write_options import write_options
from roquet.spark.plain_errors import plain_errors
from roquet.spark.push_down import hands_filters
from roquet.spark.refused_stream import stream_reader
from roquet.spark.schema import COLUMNS, choose_columns, ddl

__all__ = ["RocketMQSource"]


class RocketMQSource(DataSource):
    """Topics of a cluster.

    Example:
        .. code-block:: python

            orders = (
                spark.read.format("rocketmq")
                .option("namesrv", "127.0.0.1:9876")
                .option("subscribe", "Orders")
                .load()
            )
    """

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return SOURCE

    def schema(self) -> str:
        """All columns, or those of the option ``columns``."""
        with plain_errors():
            options = read_options(self.options)
            known = tuple(COLUMNS)
            return ddl(choose_columns(options.columns or known, known))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader."""
        kind = FilteringBrokerReader if hands_filters() else BrokerReader
        with plain_errors():
            return kind(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a stream reader."""
        return stream_reader(lambda: BrokerStreamReader(read_options(self.options), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's
        """Return a batch writer."""
        with plain_errors():
            options = write_options(self.options)
            made = BrokerWriter(options, schema, overwrite=overwrite)
            check_topic_is_there(options)
            return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001 - Spark's
        """Return a stream writer; in complete mode, every batch sends all rows."""
        del overwrite
        with plain_errors():
            return BrokerStreamWriter(write_options(self.options), schema)
