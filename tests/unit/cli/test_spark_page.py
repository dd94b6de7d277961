"""The page of the pipelines lists what they take, and what their reports hold."""

from __future__ import annotations

import ast
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from roquet.cli.client import EXIT_INTERRUPTED
from roquet.cli.spark import JOBS, spark
from roquet.cli.spark.run import FINDINGS_EXIT_CODE, job_options
from roquet.errors import ConnectFailed, PermissionRefused
from roquet.spark.jobs import (
    archive,
    archive_plan,
    capacity,
    compact,
    dlq,
    export,
    lag,
    rebuild_survey,
    resend,
    verify,
)
from roquet.spark.report import Finding, Report, Table
from roquet.storefiles import faults

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "cli-spark.md").read_text("utf-8")
SOURCES = ROOT / "src" / "roquet" / "spark" / "jobs"


def leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for each, below in command.commands.items():
            yield from leaves(f"{name} {each}", below)
    else:
        yield name, command


def commands() -> dict[str, click.Command]:
    context = click.Context(spark)
    found = {name: spark.get_command(context, name) for name in JOBS}
    return {
        path: leaf
        for name, command in found.items()
        if command is not None
        for path, leaf in leaves(name, command)
    }


COMMANDS = commands()


@click.command()
@job_options
def bare() -> None:
    """A job without options of its own."""


def flags_of(command: click.Command) -> set[str]:
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {
        flag for each in options if not each.hidden for flag in (*each.opts, *each.secondary_opts)
    }


def section(name: str) -> str:
    match = re.search(rf"(?ms)^## (?:roquet spark )?{name}(?: \S+)?$(.*?)(?=^## |\Z)", PAGE)
    assert match is not None, name
    return match[1]


def flags_in(text: str) -> set[str]:
    cells = re.findall(r"(?m)^\| (`-.*?) \| ", text)
    return {flag for cell in cells for flag in re.findall(r"(?<![\w-])(--?[\w-]+)", cell)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_listed(name: str) -> None:
    common = flags_of(bare) if name != "setup" else set()
    assert flags_of(COMMANDS[name]) >= common
    assert flags_in(section(name)) == flags_of(COMMANDS[name]) - common
    argument = [each for each in COMMANDS[name].params if isinstance(each, click.Argument)]
    words = " STORE" if argument and argument[0].required else " [STORE]" if argument else ""
    assert f"\n## roquet spark {name}{words}\n" in PAGE


def test_no_section_is_superfluous() -> None:
    named = re.findall(r"(?m)^## roquet spark (.*?)(?: \[?STORE\]?)?$", PAGE)
    assert sorted(named) == sorted(COMMANDS)


def test_common_options_and_exit_codes_are_listed() -> None:
    text = section("Every job")
    assert flags_in(text) == flags_of(bare)
    rows = re.findall(r"(?m)^\| (\d[\d, ]*) \|", text)
    codes = {int(code) for row in rows for code in row.split(", ")}
    kinds = (ConnectFailed, PermissionRefused)
    assert codes == {
        0,
        1,
        FINDINGS_EXIT_CODE,
        EXIT_INTERRUPTED,
        128 + signal.SIGTERM,
        *(kind.exit_code for kind in kinds),
    }


def test_every_field_of_a_report_is_listed() -> None:
    named = set(re.findall(r'"(\w+)":', section("Reports")))
    fields = {each for kind in (Report, Table, Finding) for each in kind.__struct_encode_fields__}
    assert named >= fields


def numbers_of(tree: ast.AST) -> Iterator[str]:
    """Names of numbers that a module puts to reports."""

    def is_numbers(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "numbers"

    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and is_numbers(node.target):
            keys = node.value.keys if isinstance(node.value, ast.Dict) else []
        elif isinstance(node, ast.Subscript) and is_numbers(node.value):
            keys = [node.slice]
        else:
            continue
        yield from (
            key.value
            for key in keys
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        )


def test_every_number_is_listed() -> None:
    found = {
        name
        for path in SOURCES.glob("*.py")
        for name in numbers_of(ast.parse(path.read_text("utf-8")))
    }
    # What is counted by Spark itself, and by kind.
    found |= {"withoutKey", "keys", "tombstones", resend.DAMAGED, resend.REFUSED}
    told = " ".join(re.findall(r"(?ms)^Numbers: (.*?)(?:Tables:|Findings:|\n\n)", PAGE))
    assert found <= set(re.findall(r"`([\w-]+)`", told))


KINDS = {
    "archive": [archive_plan.LOST, archive.DAMAGED],
    "audit": list(faults.KINDS),
    "capacity": [capacity.FULL],
    "compact": [compact.DAMAGED],
    "dlq list": [dlq.TOO_MANY],
    "dlq replay": [resend.DAMAGED, resend.REFUSED],
    "export": [export.UNREADABLE],
    "lag": [lag.AHEAD, lag.BEHIND, lag.GONE, lag.SILENT],
    "rebuild": [
        rebuild_survey.BAD_RECORD,
        rebuild_survey.GAP,
        rebuild_survey.DUPLICATE,
        rebuild_survey.RESTART,
    ],
    "replay": [resend.DAMAGED, resend.REFUSED],
    "verify": [verify.MISSING, verify.DIFFERENT, verify.UNKNOWN, verify.GAP, verify.BAD_BODY],
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_finding_is_listed(name: str) -> None:
    told = re.search(r"(?s)Findings: (.*)", section(name))
    assert told is not None
    assert set(re.findall(r"`([\w -]+)`", told[1])) >= set(KINDS[name])
