"""A standalone cluster of Spark on this machine: one Master and one Worker, from the pip package.

The Worker's Python has pyspark and pyarrow, as on a machine made for PySpark jobs, but no Roquet.
"""

from __future__ import annotations

import os
import re
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.interop.process import ChildProcess
from tests.spark.conftest import QUICK_START

SPARK_HOME = Path(pyspark.__file__).parent
SPARK_CLASS = str(SPARK_HOME / "bin" / "spark-class")
LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 120


@dataclass(frozen=True)
class Standalone:
    """A cluster that runs.

    Attributes:
        master: Its address, as ``--master`` takes it.
        python: The Python of its executors.
        work: Where executors run, a folder each.
    """

    master: str
    python: Path
    work: Path


def python_without_roquet(folder: Path) -> Path:
    """A Python that imports what is installed here, but nothing that is installed as a link."""
    venv.EnvBuilder(symlinks=True).create(folder)
    (site,) = folder.glob("lib/python3*/site-packages")
    # The names in the folder are found; its own .pth files, one of which is Roquet's, are not read.
    (site / "installed.pth").write_text(f"{SPARK_HOME.parent}\n", "utf-8")
    return folder / "bin" / "python"


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """Start a cluster on free ports of loopback, and end it."""
    python = python_without_roquet(folder / "python")
    work = folder / "work"
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    environment = {
        **kept,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
        "PYSPARK_PYTHON": str(python),
    }
    common = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]

    def daemon(name: str, *arguments: str) -> ChildProcess:
        package = f"org.apache.spark.deploy.{name.lower()}.{name}"
        command = [SPARK_CLASS, package, *common, *arguments]
        return ChildProcess(name, command, folder=folder, environment=environment)

    with daemon("Master") as master:
        master.wait_log("I have been elected leader", START_TIMEOUT_S)
        found = re.search(r"Starting Spark master at (spark://\S+)", master.log_text())
        assert found, master.log_tail()
        size = ("--cores", "2", "--memory", "1g", "--work-dir", str(work))
        with daemon("Worker", *size, found[1]) as worker:
            worker.wait_log("Successfully registered with master", START_TIMEOUT_S)
            yield Standalone(found[1], python, work)
            # Asked, not killed: it ends the executors that it has.
            worker.stop()
