"""A page starts with its purpose, and no paragraph is repeated."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT, prose_of


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_starts_with_its_purpose(path: Path) -> None:
    title, _, rest = path.read_text("utf-8").partition("\n\n")
    assert title.startswith("# ")
    assert "\n" not in title
    assert re.match(r"[\w`\[]", rest), "a sentence comes before tables, blocks and further headings"


def test_no_paragraph_is_repeated() -> None:
    paragraphs = [text for path in PAGES for text in prose_of(path).split("\n\n")]
    long = [text for text in paragraphs if len(text) > 200 and not text.startswith("|")]
    assert [text for text in long if paragraphs.count(text) > 1] == []
