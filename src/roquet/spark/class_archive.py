"""A class-data archive: Spark's classes as the JVM holds them in memory, built once.

A short job spends most of its time loading classes; with an archive they are mapped instead. Owns
the archive's location, how it is built, and the JVM flags that use it.

An archive fits one version of pyspark and of Java; both are in its name. It is written under a
temporary name first, so no JVM maps an incomplete one; a JVM ignores an archive that does not fit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from roquet.errors import SparkError
from roquet.spark.java import Java, find_java

__all__ = ["QUICK_FLAGS", "archive_flags", "archive_path", "make_archive"]

QUICK_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")
"""Flags for a JVM that lives for seconds: no optimizing compiler, no parallel collector."""

_TIMEOUT_S = 300

# Loads the classes of short jobs: a session, a shuffle, a Python source, a Parquet file.
_WARM_UP = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false") \\
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1") \\
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.range(10).groupBy().count().collect()
spark.range(10).mapInArrow(lambda batches: batches, "id long").write.parquet(sys.argv[1])
spark.stop()
"""


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "roquet"


def archive_path(java: Java) -> Path:
    """Return the path of the archive for this Java and the installed pyspark."""
    return _cache_folder() / f"spark-{version('pyspark')}-java-{java.version}.jsa"


def archive_flags(java: Java) -> list[str]:
    """Return the JVM flags that use the archive; none if there is no archive."""
    path = archive_path(java)
    return [f"-XX:SharedArchiveFile={path}"] if path.is_file() else []


def make_archive() -> Path:
    """Build or rebuild the archive; takes half a minute and 150 MB.

    Raises:
        JavaMissing: There is no Java for Spark.
        SparkError: The JVM did not write it.
    """
    java = find_java()
    path = archive_path(java)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch) / "made.jsa"
        flags = " ".join([*QUICK_FLAGS, f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable"])
        arguments = f"--driver-java-options '{flags}' --conf spark.log.level=OFF pyspark-shell"
        ended = subprocess.run(  # noqa: S603 - this Python
            [sys.executable, "-c", _WARM_UP, str(Path(scratch) / "warm.parquet")],
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env={**os.environ, "PYSPARK_SUBMIT_ARGS": arguments, "PYSPARK_PYTHON": sys.executable},
        )
        if not made.is_file():
            raise SparkError(
                "Spark's class archive could not be built.",
                detail=ended.stderr.strip()[-500:] or f"the warm-up exited with {ended.returncode}",
                hint="Jobs run without it, and start more slowly.",
            )
        made.replace(path)
    return path
