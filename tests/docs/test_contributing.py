"""CONTRIBUTING.md names existing files, names in them and make targets."""

from __future__ import annotations

import re

import pytest

from tests.pages import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
ROWS = re.findall(r"^\| `((?:src|docs|tests)/[^`]+)` \|(?: `([^`]+)`)? \|", PAGE, re.MULTILINE)
PATHS = re.findall(r"`((?:src|docs|tests|scripts|benchmarks|examples|fuzz)\b[\w/.]*)`", PAGE)


def test_the_recipes_are_found() -> None:
    assert len(ROWS) > 15


@pytest.mark.parametrize(("path", "name"), ROWS)
def test_a_row_names_what_is_in_its_file(path: str, name: str) -> None:
    file = ROOT / path
    assert file.exists()
    assert not name or name in file.read_text("utf-8")


def test_every_path_exists() -> None:
    assert [path for path in PATHS if not (ROOT / path).exists()] == []


def test_every_target_of_make_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", PAGE, re.MULTILINE))
    assert named
    assert named <= targets
