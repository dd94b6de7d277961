"""Sessions for pipelines and commands.

Owns how Spark is started: on this machine with flags that make it start quickly, on a cluster with
Roquet sent along. Whoever has a session already uses that one; pipelines take any.

Example:
    Count the messages of a store::

        with open_session(app_name="count") as spark:
            print(spark.read.format("rocketmq-log").load("/data/store").count())
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from roquet.errors import SparkError, SparkMissing
from roquet.spark import register
from roquet.spark.class_archive import QUICK_FLAGS, archive_flags
from roquet.spark.java import find_java
from roquet.spark.packaging import executor_conf, installed_version, pack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DEFAULT_MASTER",
    "Session",
    "check_spark",
    "choose_python",
    "is_of_spark",
    "open_session",
    "spoken_failures",
]

Session: TypeAlias = "SparkSession"
"""Spark's own, for those who only pass it on."""

DEFAULT_MASTER = "local[*]"
PYSPARK_MIN = (4, 2)

_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "8",
}
_ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def check_spark() -> None:
    """See that Spark can be started.

    Raises:
        SparkMissing: pyspark is not installed or too old.
        JavaMissing: There is no Java for it.
    """
    found = installed_version("pyspark")
    if found is None:
        raise SparkMissing(
            "This needs Spark, and pyspark is not installed.",
            hint="Install it with: pip install 'roquet[spark]'",
        )
    if tuple(int(part) for part in found.split(".")[:2]) < PYSPARK_MIN:
        raise SparkMissing(
            f"This needs pyspark {'.'.join(map(str, PYSPARK_MIN))} or newer; {found} is installed.",
            hint="Update it with: pip install --upgrade 'roquet[spark]'",
        )
    find_java()


@contextmanager
def open_session(
    *,
    app_name: str,
    master: str = DEFAULT_MASTER,
    conf: Mapping[str, str] | None = None,
    is_short: bool = True,
) -> Iterator[SparkSession]:
    """Start Spark, know both sources, and stop it at the end of the block.

    Args:
        app_name: What Spark's own pages call the job, after ``roquet``.
        master: Where it runs: ``local[N]``, ``spark://host:port``, ``yarn``, ``k8s://…``.
        conf: Settings of Spark that win over ours.
        is_short: Whether the job lives for seconds, so that quick starting counts.

    Raises:
        SparkMissing: pyspark is not installed or too old.
        JavaMissing: There is no Java for it.
    """
    check_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - Spark is optional until here

    is_local = master.startswith("local")
    with tempfile.TemporaryDirectory(prefix="roquet-spark-") as scratch:
        settings = {**_ALWAYS, "spark.sql.warehouse.dir": str(Path(scratch) / "warehouse")}
        if is_local:
            settings |= _LOCAL
            flags = [f"-Dderby.system.home={scratch}"]
            if is_short:
                flags += [*QUICK_FLAGS, *archive_flags(find_java())]
            settings["spark.driver.extraJavaOptions"] = " ".join(flags)
            # Sources are planned in a process of Python too, which only this variable chooses.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        else:
            settings |= executor_conf(pack(Path(scratch) / "packages.tar.gz"), master)
            choose_python(conf or {})
        settings |= conf or {}
        builder = SparkSession.builder.master(master).appName(f"roquet {app_name}")
        with _logging_to(Path(scratch) / "spark.log"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = builder.config(map=dict(settings)).getOrCreate()
        try:
            register(session)
            _hush(session)
            yield session
        finally:
            with suppress(*_gone()):  # it may have ended before us
                session.stop()


def choose_python(conf: Mapping[str, str]) -> None:
    """Name the Python of a cluster's executors.

    The same name is used here too, where sources are planned. By default it is ``python3``, which
    may be another one on each machine; here it must be the one that has Roquet.
    """
    if "PYSPARK_PYTHON" in os.environ:
        return
    if "spark.pyspark.python" in conf:
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
        return
    folder = str(Path(sys.executable).parent)
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if folders[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, *folders])


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Have a JVM that is started meanwhile write its log to a file, for all its life.

    Raises:
        SparkError: Spark did not start; the detail is the end of its log.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    except Exception as error:
        lines = path.read_text(errors="replace").splitlines()
        raise SparkError(
            "Spark did not start.",
            detail="; ".join([_first_lines(str(error)), *_said(lines)]),
            hint="See that --master is right and that nothing in --conf contradicts it.",
        ) from error
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _said(lines: Sequence[str]) -> list[str]:
    """The last words of a log that are no stack; what went wrong, if any of them say it."""
    words = [line for line in lines if line.strip() and not line.startswith((" ", "\t", "..."))]
    faults = [line for line in words if "Exception" in line or "Error" in line]
    return (faults or words)[-2:]


class _Quiet(logging.Filter):
    """Passes over what py4j logs of connections that broke, with stacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname


def _gone() -> tuple[type[Exception], ...]:
    """What is raised if Spark's process has ended."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark is optional until here

    return Py4JError, ConnectionError


def _hush(session: SparkSession) -> None:
    """Have threads of Spark's here say nothing if its process ends before us: we tell it."""
    if not any(isinstance(each, _Quiet) for each in logging.getLogger().filters):
        logging.getLogger().addFilter(_Quiet())
    server = getattr(getattr(session, "sparkContext", None), "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def is_of_spark(error: Exception) -> bool:
    """Whether Spark failed, or has ended, and not what it was asked to do."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark is optional until here

    return isinstance(error, (PySparkException, *_gone()))


@contextmanager
def spoken_failures() -> Iterator[None]:
    """Cut what Spark says of a failure down to what a person can use.

    Raises:
        SparkError: Spark failed.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark is optional until here

    try:
        yield
    except PySparkException as error:
        raise SparkError("Spark could not do it.", detail=_first_lines(str(error))) from error
    except _gone() as error:
        raise SparkError(
            "Spark's process ended in the middle of the job.",
            detail=_first_lines(str(error)),
            hint="It may have been killed for its memory: see --conf spark.driver.memory=…",
        ) from error


def _first_lines(text: str) -> str:
    """The message without the stacks of Java and of Python."""
    lines = []
    for line in text.splitlines():
        if "JVM stacktrace" in line:
            break
        if line.strip() and not line.startswith((" ", "\t", "Traceback")):
            lines.append(line.strip())
    return "; ".join(lines[:6])
