"""pyproject.toml, the workflows and the changelog agree about versions."""

import re
import tomllib
from pathlib import Path

import roquet

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
PYTHONS = re.findall(r":: (3\.\d+)\n", "\n".join(PROJECT["classifiers"]) + "\n")


def test_the_oldest_python_is_the_first_of_the_classifiers() -> None:
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{PYTHONS[0].replace('.', '')}"


def test_every_python_of_the_classifiers_is_tested() -> None:
    workflow = (ROOT / ".github" / "workflows" / "check.yaml").read_text("utf-8")
    (matrix,) = re.findall(r"python: \[(.*)\]", workflow)
    assert re.findall(r'"([\d.]+)"', matrix) == PYTHONS


def test_every_python_of_the_classifiers_has_wheels() -> None:
    builds = [f"cp{python.replace('.', '')}-*" for python in PYTHONS]
    assert PYPROJECT["tool"]["cibuildwheel"]["build"] == builds


def test_the_changelog_has_a_section_of_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    sections = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert roquet.__version__ in sections
