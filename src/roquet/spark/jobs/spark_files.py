"""What Spark's own readers and writers reach, without our help.

Streams of topics and ``compact`` write through Spark, which knows folders and HDFS and needs a jar
for everything else. This says so before Spark does, with a stack of Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.errors import SparkOptionError
from roquet.spark.jobs.lake_files import public_address
from roquet.spark.tasks import driver_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_spark_writes"]


def check_spark_writes(spark: SparkSession, address: str, job: str) -> None:
    """Check that Spark has a file system for an address.

    Raises:
        SparkOptionError: It has none.
        SparkError: The session uses Spark Connect.
    """
    scheme = address.partition("://")[0] if "://" in address else ""
    if not scheme:
        return
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark is optional until here
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    context: Any = driver_context(spark)
    try:
        files = context._jvm.org.apache.hadoop.fs.FileSystem  # noqa: SLF001 - Spark has no other way
        files.getFileSystemClass(scheme, context._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
    except (Py4JError, PySparkException):
        raise SparkOptionError(
            f"Spark itself has no file system for {scheme}://, and {job} writes through Spark.",
            detail=public_address(address),
            hint="Name a folder or hdfs://, or add Spark's package for it: for S3 "
            "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0 and s3a://.",
        ) from None
