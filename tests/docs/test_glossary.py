"""The glossary explains each word once and names existing files."""

from __future__ import annotations

import re

from tests.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "glossary.md").read_text("utf-8")
WORDS = re.findall(r"^\| ([a-z][^|]*) \| ", PAGE, re.MULTILINE)
PATHS = re.findall(r"`([\w/]+(?:/|\.pyx?))`", PAGE)


def test_every_word_is_explained_once() -> None:
    words = [word for word in WORDS if word != "word"]
    assert len(words) > 20
    assert sorted(words) == sorted(set(words))


def test_every_file_exists() -> None:
    assert PATHS
    assert [path for path in PATHS if not (ROOT / "src" / "roquet" / path).exists()] == []
