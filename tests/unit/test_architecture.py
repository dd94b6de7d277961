"""What the linters cannot check: sizes, stray addresses and left-over marks.

The layers themselves are contracts of import-linter in pyproject.toml, which `make lint` checks.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAX_FILE_LINES = 800
MAX_COMPILED_LINES = 500
MAX_FUNCTION_LINES = 100

TEXT_FOLDERS = ("src", "tests", "benchmarks", "examples", "fuzz", "docs", "scripts", ".ci")
TEXT_SUFFIXES = {
    "",
    ".h",
    ".java",
    ".md",
    ".pxd",
    ".py",
    ".pyi",
    ".pyx",
    ".sh",
    ".toml",
    ".xml",
    ".yaml",
}
TOP_LEVEL_FILES = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
    "setup.py",
)

# A path that exists on one machine only has no place in the project.
MACHINE_PATH = re.compile(r"(?<![\w.$}/~-])/(?:home|root|tmp|work|Users|mnt)/\w")
LEFT_OVER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|HA" + r"CK|X" + r"XX)\b")

CYTHON_IMPORT = re.compile(r"\s*(?:from|import|cimport)\s+(roquet(?:\.\w+)+)")

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


def test_the_scan_covers_the_project() -> None:
    seen = {str(path.relative_to(ROOT)) for path in text_files()}
    assert {"src/roquet/errors.py", "tests/unit/test_architecture.py", "Makefile"} <= seen


def test_no_file_is_too_long() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}: {line_count(path)} lines"
        for path in source_files(".py", ".pyi")
        if line_count(path) > MAX_FILE_LINES
    ]
    assert too_long == []


def test_no_compiled_module_is_too_long() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}: {line_count(path)} lines"
        for path in source_files(".pyx", ".pxd")
        if line_count(path) > MAX_COMPILED_LINES
    ]
    assert too_long == []


def test_no_function_is_too_long() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in source_files(".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert too_long == []


TEST_MODULE = re.compile(r"(?:^|\.)test_\w+$")


def imported_names(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the full name of every module, or name of a module, that a file imports."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
            yield from ((node.lineno, f"{node.module}.{each.name}") for each in node.names)


def test_no_module_imports_a_test_module() -> None:
    """Code shared by two test modules is in a kit, so that either can be moved or deleted alone."""
    assert [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in source_files(".py")
        for line, name in imported_names(path)
        if TEST_MODULE.search(name)
    ] == []


SERVERS = (
    "roquet.broker.broker",
    "roquet.namesrv.namesrv",
    "roquet.testing.background",
    "roquet.testing.broker",
    "tests.integration",
)


def test_unit_tests_start_no_servers() -> None:
    """Whole brokers and name servers belong to tests/integration."""
    assert [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests" / "unit").rglob("*.py"))
        for line, name in imported_names(path)
        if any(is_below(name, server) for server in SERVERS)
        and path.name != "test_package.py"  # inspects the function, and never calls it
    ] == []


def package_of(module: str) -> str:
    """The package, or module, directly below ``roquet`` that a module belongs to."""
    return module.split(".")[1]


def is_below(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


class Contracts:
    """The contracts of import-linter in pyproject.toml; it cannot read Cython."""

    def __init__(self) -> None:
        pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        contracts = pyproject["tool"]["importlinter"]["contracts"]
        layers = next(each for each in contracts if each["type"] == "layers")
        self.level_of = {
            name.strip(" ()"): level
            for level, row in enumerate(reversed(layers["layers"]))
            for name in row.split("|")
        }
        self.outside = set(layers["exhaustive_ignores"])
        self.forbidden = [
            (source, target)
            for each in contracts
            if each["type"] == "forbidden"
            for source in each["source_modules"]
            for target in each["forbidden_modules"]
            if source != "roquet"
        ]

    def allow(self, importer: str, imported: str) -> bool:
        if any(is_below(importer, a) and is_below(imported, b) for a, b in self.forbidden):
            return False
        above, below = package_of(importer), package_of(imported)
        if above == below or {above, below} & self.outside:
            return True
        return self.level_of[above] > self.level_of[below]


def cython_imports() -> list[tuple[str, str, str]]:
    """The imports of Roquet in compiled modules: place, module and imported name."""
    return [
        (
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}",
            ".".join(path.relative_to(ROOT / "src").with_suffix("").parts),
            match[1],
        )
        for path in source_files(".pyx", ".pxd")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if (match := CYTHON_IMPORT.match(line))
    ]


def test_compiled_modules_import_only_downwards() -> None:
    contracts = Contracts()
    imports = cython_imports()
    assert imports
    assert [where for where, *names in imports if not contracts.allow(*names)] == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("roquet.store._append", "roquet.broker.hot"),
        ("roquet.client._send", "roquet.broker.hot"),
        ("roquet.remoting._frame", "roquet.format._record"),
        ("roquet.spark.log._columns", "roquet.store._append"),
    ],
)
def test_wrong_imports_are_recognised(importer: str, imported: str) -> None:
    assert not Contracts().allow(importer, imported)
    assert Contracts().allow(importer, "roquet.model.host")


def test_no_machine_specific_path() -> None:
    assert [text for text, _ in findings(MACHINE_PATH)] == []


def test_no_left_over_marks() -> None:
    assert [text for text, _ in findings(LEFT_OVER)] == []


def test_addresses_point_to_known_places() -> None:
    assert [text for text, match in findings(ADDRESS) if match[1] not in KNOWN_HOSTS] == []


@pytest.mark.parametrize("line", ["cd /home" + "/me/x", "open('/tmp" + "/x')"])
def test_machine_paths_are_recognised(line: str) -> None:
    assert MACHINE_PATH.search(line)


@pytest.mark.parametrize("line", ["store/commitlog", "$HOME/tmp/x", "~/work/x", "a/tmp/b"])
def test_other_paths_are_allowed(line: str) -> None:
    assert not MACHINE_PATH.search(line)
