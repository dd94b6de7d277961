"""What all commands of ``roquet spark`` have in common; Spark itself is not started."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from roquet.cli.main import roquet
from roquet.cli.spark import JOBS
from roquet.cli.spark.run import JobRun, job_options, run_job
from roquet.errors import JavaMissing
from roquet.spark import session
from roquet.spark.report import Report

seen: list[JobRun] = []
made = Report(job="toy", source="here")


def work(_session: object) -> Report:
    if made.source == "bad":
        stack = "Traceback\n  File x\n    code\n\tat org.apache.Spark\n\tat more"
        raise PySparkException(f"[PLAN] The option 'x' is unknown.\nHINT: y\n{stack}")
    if made.source == "gone":
        raise Py4JNetworkError("Answer from Java side is empty")
    if made.source.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[made.source])
        signal.pause()
    return made


@click.command()
@click.argument("store")
@job_options
def toy(*, store: str, run: JobRun) -> None:
    made.source = store
    seen.append(run)
    run_job(run, "toy", work)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(**_: object) -> Iterator[object]:
        yield object()

    monkeypatch.setattr(session, "open_session", opened)
    monkeypatch.setitem(JOBS, "toy", (f"{__name__}:toy", "A toy."))
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(toy=toy))
    seen.clear()
    made.findings.clear()
    made.tables.clear()
    made.numbers.clear()


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(roquet, ["spark", "toy", *words])
    return result.exit_code, result.output


def test_flags_become_one_value(tmp_path: Path) -> None:
    code, _ = call(
        *("store", "--master", "local[1]", "--topics", "A, B", "--from", "1000", "--dry-run"),
        *("--conf", "a.b=c=d", "--report", str(tmp_path / "report.json")),
    )
    assert code == 0
    (run,) = seen
    assert (run.master, run.topics, run.from_ms, run.to_ms) == ("local[1]", ("A", "B"), 1000, None)
    assert (run.conf, run.is_dry_run) == ({"a.b": "c=d"}, True)
    assert run.wanted.log_options() == {"topics": "A,B", "startingTimestamp": "1000"}
    assert json.loads((tmp_path / "report.json").read_text())["isDryRun"] is True


def test_a_report_is_printed_as_text_and_as_json() -> None:
    made.numbers["messages"] = 12345
    made.add_table("By topic", ["topic", "share", "none"], [["A\x1b", 0.5, None]])
    _, printed = call("store")
    assert "12,345" in printed
    assert "A\\x1b" in printed
    assert "0.50" in printed
    _, printed = call("store", "--json")
    assert json.loads(printed)["tables"][0]["rows"] == [["A\x1b", 0.5, None]]


def test_a_report_is_a_page_if_its_file_says_so(tmp_path: Path) -> None:
    made.numbers["<b>"] = "<script>"
    page, plain = tmp_path / "report.HTML", tmp_path / "report.json"
    code, _ = call("store", "--report", str(page), "--report", str(plain))
    assert code == 0
    text = page.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "<script" not in text
    decoded = json.loads(plain.read_text())
    assert decoded["numbers"] == {"<b>": "<script>"}
    assert f"at {decoded['finishedAt']}" in text


def test_a_report_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    code, printed = call("store", "--report", str(tmp_path / "none" / "report.html"))
    assert code == 2
    assert "report.html' cannot be written" in printed
    assert seen == []


def test_findings_give_exit_code_two() -> None:
    made.add_finding("gap", "queue 0", "3 are missing")
    code, printed = call("store")
    assert code == 2
    assert "3 are missing" in printed


def test_the_output_of_spark_is_shortened() -> None:
    code, printed = call("bad")
    assert code == 1
    assert "The option 'x' is unknown.; HINT: y" in printed
    assert "org.apache" not in printed


def test_a_spark_failure_is_reported_without_a_stack() -> None:
    code, printed = call("gone")
    assert code == 1
    assert printed.startswith("Error: Spark's process ended in the middle of the job.\nDETAIL: Ans")
    assert "Traceback" not in printed


@pytest.mark.parametrize(("name", "expected"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_a_job_cleanly(name: str, expected: int) -> None:
    before = signal.getsignal(signal.Signals[name])
    code, printed = call(name)
    assert (code, printed) == (expected, f"Ended by {name} before it was done.\n")
    assert signal.getsignal(signal.Signals[name]) is before


def test_a_signal_ends_the_start_of_spark_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    other = subprocess.Popen(["sleep", "60"])
    started: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def opened(**_: object) -> Iterator[object]:
        started.append(subprocess.Popen(["sh", "-c", "sleep 60; sleep 60"]))
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            yield object()
        finally:
            # pyspark stops what it made so far, and its JVM is gone.
            raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(session, "open_session", opened)
    try:
        code, printed = call("store")
        assert (code, printed) == (143, "Ended by SIGTERM before it was done.\n")
        assert started[0].wait(30) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_malformed_spark_settings_are_refused() -> None:
    code, printed = call("store", "--conf", "a.b")
    assert code == 2
    assert "KEY=VALUE" in printed


def test_missing_java_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise JavaMissing("Spark needs Java, which is not installed.", hint="Install it.")

    monkeypatch.setattr(session, "open_session", refuse)
    code, printed = call("store")
    assert code == 1
    assert printed == "Error: Spark needs Java, which is not installed.\nHINT: Install it.\n"


def test_help_lists_the_jobs() -> None:
    result = CliRunner().invoke(roquet, ["spark", "--help"])
    assert all(name in result.output for name in JOBS)


WITHOUT_EXTRA = """
import sys

MISSING = set(sys.argv[1].split(","))

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())

import click
from click.testing import CliRunner
from roquet.cli.main import roquet
from roquet.cli.spark import JOBS, spark

def leaves(command, words):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from leaves(command.get_command(context, name), [*words, name])
    else:
        for each in command.params:
            if each.required:
                words = [*words, *([each.opts[0]] if isinstance(each, click.Option) else []), "x"]
        yield words

runs = list(leaves(spark, ["spark"]))
assert len({words[1] for words in runs}) == len(JOBS)
for words in runs:
    result = CliRunner().invoke(roquet, words)
    print(result.exit_code, " ".join(result.output.splitlines()))
help_ = CliRunner().invoke(roquet, ["spark", "stats", "--help"])
assert (help_.exit_code, "Summarize a log" in help_.output) == (0, True), help_.output
"""


@pytest.mark.parametrize("missing", [("pyspark", "pyarrow", "numpy"), ("pyarrow",)])
def test_every_command_reports_that_the_extra_is_missing(missing: tuple[str, ...]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, ",".join(missing)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    are = "this package is" if len(missing) == 1 else "these packages are"
    assert set(ran.stdout.splitlines()) == {
        f"1 Error: This needs Spark, and {are} not installed: {', '.join(missing)}. "
        "HINT: Install it with: pip install 'roquet[spark]'"
    }
    assert len(ran.stdout.splitlines()) >= len(JOBS)
