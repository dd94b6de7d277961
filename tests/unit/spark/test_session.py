"""Which Python a cluster's executors are told to run, and what is said if Spark does not start."""

import os
import sys
from pathlib import Path

import pytest

from roquet.errors import SparkError, SparkOptionError
from roquet.spark.session import _logging_to, _with_log, choose_python

OURS = str(Path(sys.executable).parent)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that what the tests change is put back.
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("PATH", "/usr/bin")


def test_python3_is_ours_here_and_theirs_there() -> None:
    choose_python({})
    choose_python({})
    assert os.environ["PATH"] == os.pathsep.join([OURS, "/usr/bin"])
    assert "PYSPARK_PYTHON" not in os.environ


def test_a_setting_of_spark_is_followed_here_too() -> None:
    choose_python({"spark.pyspark.python": "/opt/python/bin/python"})
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python/bin/python"
    assert os.environ["PATH"] == "/usr/bin"


def test_what_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python3.12")
    choose_python({"spark.pyspark.python": "/opt/python/bin/python"})
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PATH"]) == ("python3.12", "/usr/bin")


def test_why_spark_did_not_start(tmp_path: Path) -> None:
    stack = "\tat org.apache.spark.deploy.SparkSubmit$.main(SparkSubmit.scala:1180)"

    def start() -> None:
        with _logging_to(tmp_path / "log"):
            os.write(2, f"WARN Utils\nSparkException: X must be set\n{stack}\n".encode())
            raise RuntimeError(f"[JAVA_GATEWAY_EXITED] It exited.\n{stack}")

    with pytest.raises(SparkError, match="did not start") as caught:
        start()
    assert caught.value.detail == "[JAVA_GATEWAY_EXITED] It exited.; SparkException: X must be set"


def test_the_log_of_a_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    log = tmp_path / "spark.log"
    error = SparkError("Spark failed.", detail="[X] y", hint="Try z.")
    assert _with_log(error, log) is error
    log.write_text("")
    assert _with_log(error, log) is error
    log.write_text("ERROR Executor: a stack")
    refused = SparkOptionError("There is no such option.")
    assert _with_log(refused, log) is refused
    named = _with_log(error, log)
    (kept,) = tmp_path.glob("roquet-spark-*.log")
    assert kept.read_text() == "ERROR Executor: a stack"
    assert (named.message, named.detail) == ("Spark failed.", "[X] y")
    assert named.hint == f"Try z. Spark's log is in {kept}."
