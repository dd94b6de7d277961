"""What the linters cannot say: sizes, stray addresses and left-over marks.

The layers themselves are contracts of import-linter in pyproject.toml, which `make lint` checks.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAX_FILE_LINES = 800
MAX_FAST_LANE_LINES = 900
MAX_FUNCTION_LINES = 100

TEXT_FOLDERS = ("src", "tests", "benchmarks", "examples", "fuzz", "docs", "scripts", ".ci")
TEXT_SUFFIXES = {"", ".h", ".java", ".md", ".py", ".pyi", ".pyx", ".sh", ".toml", ".xml", ".yaml"}
TOP_LEVEL_FILES = ("CHANGELOG.md", "Makefile", "README.md", "pyproject.toml", "setup.py")

# A path that exists on one machine only has no place in the project.
MACHINE_PATH = re.compile(r"(?<![\w.$}/~-])/(?:home|root|tmp|work|Users|mnt)/\w")
LEFT_OVER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|HA" + r"CK|X" + r"XX)\b")

# Where packages come from is the business of the machine that installs them, so an address is
# either loopback or one of the places that the documents point to.
ADDRESS = re.compile(r"https?://([\w.-]+)")
KNOWN_HOSTS = {
    "127.0.0.1",
    "github.com",
    "keepachangelog.com",
    "kubernetes.default.svc",  # the name of the API server inside any cluster
    "localhost",
    "logging.apache.org",
    "maven.apache.org",  # the name of the POM schema
    "rocketmq.apache.org",
    "semver.org",
    "spark.apache.org",
    "www.apache.org",
    "www.w3.org",  # the name of the XML schema
}


def text_files() -> Iterator[Path]:
    for name in TOP_LEVEL_FILES:
        yield ROOT / name
    for folder in TEXT_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            parts = path.relative_to(ROOT).parts
            generated = any(
                part in {"__pycache__", "target"} or part.endswith(".egg-info") or part[0] == "."
                for part in parts[1:]
            )
            golden_data = parts[:3] == ("tests", "golden", "data") and path.suffix != ".md"
            if path.is_file() and path.suffix in TEXT_SUFFIXES and not (generated or golden_data):
                yield path


def source_files(*suffixes: str) -> list[Path]:
    return [path for path in text_files() if path.suffix in suffixes]


def findings(pattern: re.Pattern[str]) -> list[tuple[str, re.Match[str]]]:
    return [
        (f"{path.relative_to(ROOT)}:{number}: {line.strip()}", match)
        for path in text_files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        for match in pattern.finditer(line)
    ]


def line_count(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def test_the_scan_sees_the_project() -> None:
    seen = {str(path.relative_to(ROOT)) for path in text_files()}
    assert {"src/roquet/errors.py", "tests/unit/test_architecture.py", "Makefile"} <= seen


def test_no_file_is_too_long() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}: {line_count(path)} lines"
        for path in source_files(".py", ".pyi")
        if line_count(path) > MAX_FILE_LINES
    ]
    assert too_long == []


def test_the_fast_lanes_stay_readable() -> None:
    lanes = source_files(".pyx")
    assert sorted(path.name for path in lanes) == [
        "_arrow.pyx",
        "_counts.pyx",
        "_fast.pyx",
        "_frame.pyx",
        "_records.pyx",
        "_sends.pyx",
        "_wire.pyx",
    ]
    assert all(line_count(path) <= MAX_FAST_LANE_LINES for path in lanes)


def test_no_function_is_too_long() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in source_files(".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert too_long == []


def test_no_path_of_one_machine() -> None:
    assert [text for text, _ in findings(MACHINE_PATH)] == []


def test_no_left_over_marks() -> None:
    assert [text for text, _ in findings(LEFT_OVER)] == []


def test_addresses_point_to_known_places() -> None:
    assert [text for text, match in findings(ADDRESS) if match[1] not in KNOWN_HOSTS] == []


@pytest.mark.parametrize("line", ["cd /home" + "/me/x", "open('/tmp" + "/x')"])
def test_machine_paths_are_recognised(line: str) -> None:
    assert MACHINE_PATH.search(line)


@pytest.mark.parametrize("line", ["store/commitlog", "$HOME/tmp/x", "~/work/x", "a/tmp/b"])
def test_other_paths_are_let_through(line: str) -> None:
    assert not MACHINE_PATH.search(line)
