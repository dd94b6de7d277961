"""What Spark's own readers and writers reach, without our help.

Spark knows folders and HDFS, and needs a jar for everything else. A stream of topics writes through
Spark in any case: this says what is missing before Spark does, with a stack of Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.errors import SparkOptionError
from roquet.spark.jobs.lake_files import public_address
from roquet.spark.tasks import driver_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_spark_writes", "is_written_by_spark"]


def is_written_by_spark(spark: SparkSession, address: str) -> bool:
    """Whether Spark has a file system for an address; over Spark Connect that is not known.

    Args:
        spark: The session.
        address: A folder, or a URI.
    """
    scheme = address.partition("://")[0] if "://" in address else ""
    if not scheme or not hasattr(spark, "_jvm"):
        return True
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark is optional until here
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    context: Any = driver_context(spark)
    try:
        files = context._jvm.org.apache.hadoop.fs.FileSystem  # noqa: SLF001 - Spark has no other way
        files.getFileSystemClass(scheme, context._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
    except (Py4JError, PySparkException):
        return False
    return True


def check_spark_writes(spark: SparkSession, address: str, job: str) -> None:
    """Check that Spark has a file system for an address.

    Raises:
        SparkOptionError: It has none.
    """
    if not is_written_by_spark(spark, address):
        scheme = address.partition("://")[0]
        raise SparkOptionError(
            f"Spark itself has no file system for {scheme}://, and {job} writes through Spark.",
            detail=public_address(address),
            hint="Name a folder or hdfs://, or add Spark's package for it: for S3 "
            "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0 and s3a://.",
        )
