"""A class-data archive: the classes of Spark as the JVM has them in memory, made once.

A short job spends most of its time with loading classes; from an archive they are mapped. Owns
where the archive lies, how it is made, and the JVM flags for using it.

The archive is of one pyspark and one Java, whose versions are in its name. It is written under
another name first, so that nobody ever maps half of one; a JVM ignores one that does not fit.
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
"""For a JVM that lives for seconds: no compiling for the long run, no parallel collector."""

_TIMEOUT_S = 300

# What short jobs use: a session, a query with a shuffle, a Python source, a Parquet file.
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
    """Where the archive for this Java and the installed pyspark lies."""
    return _cache_folder() / f"spark-{version('pyspark')}-java-{java.version}.jsa"


def archive_flags(java: Java) -> list[str]:
    """The JVM flags that use the archive; none if it was not made."""
    path = archive_path(java)
    return [f"-XX:SharedArchiveFile={path}"] if path.is_file() else []


def make_archive() -> Path:
    """Make the archive, anew if it is there; takes half a minute and 150 MB.

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
                "Spark's class archive could not be made.",
                detail=ended.stderr.strip()[-500:] or f"the warm-up ended with {ended.returncode}",
                hint="Jobs run without it, and start more slowly.",
            )
        made.replace(path)
    return path
