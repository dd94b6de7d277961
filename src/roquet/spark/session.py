"""Sessions for pipelines and commands.

Starts Spark: on this machine with flags for a quick start, on a cluster with Roquet shipped to the
executors. Pipelines also accept any existing session.

Example:
    Count the messages of a store::

        with open_session(app_name="count") as spark:
            print(spark.read.format("rocketmq-log").load("/data/store").count())
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from roquet.errors import SparkError
from roquet.spark import register
from roquet.spark.class_archive import QUICK_FLAGS, archive_flags
from roquet.spark.extra import check_extra
from roquet.spark.java import find_java
from roquet.spark.packaging import executor_conf, pack
from roquet.spark.push_down import PUSH_DOWN

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
"""Spark's class, for modules that only pass it on."""

DEFAULT_MASTER = "local[*]"

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
    PUSH_DOWN: "true",
}


def check_spark() -> None:
    """Raise unless Spark can be started.

    Raises:
        SparkMissing: The extra ``spark`` is not installed, or too old.
        JavaMissing: There is no Java for it.
    """
    check_extra()
    find_java()


@contextmanager
def open_session(
    *,
    app_name: str,
    master: str = DEFAULT_MASTER,
    conf: Mapping[str, str] | None = None,
    is_short: bool = True,
) -> Iterator[SparkSession]:
    """Start Spark, register both sources, and stop Spark at the end of the block.

    What Spark logs goes to a file, which is kept if the block raises an error of Spark.

    Args:
        app_name: The job's name in Spark's UI, after ``roquet``.
        master: Where it runs: ``local[N]``, ``spark://host:port``, ``yarn``, ``k8s://…``.
        conf: Spark settings that override ours.
        is_short: Whether the job takes seconds, so that a quick start matters.

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
            # Sources are planned in a Python process, too, which only this variable selects.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        else:
            settings |= executor_conf(pack(Path(scratch) / "packages.tar.gz"), master)
            choose_python(conf or {})
        settings |= conf or {}
        builder = SparkSession.builder.master(master).appName(f"roquet {app_name}")
        log = Path(scratch) / "spark.log"
        with _logging_to(log), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = builder.config(map=dict(settings)).getOrCreate()
        try:
            register(session)
            _hush(session)
            yield session
        except SparkError as error:
            raise _with_log(error, log) from error.__cause__
        finally:
            with suppress(*_gone()):  # it may have ended before us
                session.stop()


def choose_python(conf: Mapping[str, str]) -> None:
    """Set the Python of a cluster's executors.

    Planning uses the same name on this machine. By default it is ``python3``, which may differ
    between machines; here it must be the one that has Roquet.
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
    """Make a JVM that is started within the block write its log to a file until it ends.

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
            hint="Check that --master is right and that nothing in --conf contradicts it.",
        ) from error
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _with_log(error: SparkError, log: Path) -> SparkError:
    """Keep the log of a session that failed, and name it in the error's hint.

    Refused options and the like say all there is to know, and keep their class.
    """
    if type(error) is not SparkError or not log.is_file() or not log.stat().st_size:
        return error
    handle, name = tempfile.mkstemp(prefix="roquet-spark-", suffix=".log")
    os.close(handle)
    shutil.copyfile(log, name)
    hint = f"Spark's log is in {name}."
    return SparkError(
        error.message,
        code=error.code,
        detail=error.detail,
        hint=hint if error.hint is None else f"{error.hint} {hint}",
    )


def _said(lines: Sequence[str]) -> list[str]:
    """Return the last lines of a log without stacks; only the errors, if there are any."""
    words = [line for line in lines if line.strip() and not line.startswith((" ", "\t", "..."))]
    faults = [line for line in words if "Exception" in line or "Error" in line]
    return (faults or words)[-2:]


class _Quiet(logging.Filter):
    """Drops py4j's logged stacks of broken connections."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname


def _gone() -> tuple[type[Exception], ...]:
    """Return the exceptions that mean that Spark's process has ended."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark is optional until here

    return Py4JError, ConnectionError


def _hush(session: SparkSession) -> None:
    """Silence Spark's threads in this process if its JVM ends first: we report that."""
    if not any(isinstance(each, _Quiet) for each in logging.getLogger().filters):
        logging.getLogger().addFilter(_Quiet())
    server = getattr(getattr(session, "sparkContext", None), "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def is_of_spark(error: Exception) -> bool:
    """Whether the error means that Spark itself failed or has ended."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark is optional until here

    return isinstance(error, (PySparkException, *_gone()))


@contextmanager
def spoken_failures() -> Iterator[None]:
    """Reduce Spark's error messages to the useful lines.

    Raises:
        SparkError: Spark failed.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark is optional until here

    try:
        yield
    except PySparkException as error:
        raise SparkError("Spark failed.", detail=_first_lines(str(error))) from error
    except _gone() as error:
        raise SparkError(
            "Spark's process ended in the middle of the job.",
            detail=_first_lines(str(error)),
            hint="It may have run out of memory: see --conf spark.driver.memory=…",
        ) from error


def _first_lines(text: str) -> str:
    """Return the message without Java and Python stacks."""
    lines = []
    for line in text.splitlines():
        if "JVM stacktrace" in line:
            break
        if line.strip() and not line.startswith((" ", "\t", "Traceback")):
            lines.append(line.strip())
    return "; ".join(lines[:6])
