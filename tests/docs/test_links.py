"""Links in the pages have targets: a file of the project, and a heading in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT, prose_of

LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"#+ (?P<text>.*)")


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.strip().replace(" ", "-")


def anchors_of(path: Path) -> set[str]:
    found = (HEADING.match(line) for line in prose_of(path).splitlines())
    return {anchor_of(each["text"]) for each in found if each}


def broken_links_of(path: Path) -> Iterator[str]:
    for match in LINK.finditer(prose_of(path)):
        target, _, anchor = match["target"].partition("#")
        if "://" in target:
            continue
        file = path.parent / target if target else path
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            yield match["target"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_has_a_target(path: Path) -> None:
    assert list(broken_links_of(path)) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Top\n[a](#top) [b](#no) [c](page.md) [d](none.md) [e](page.md#no)\n")
    assert list(broken_links_of(page)) == ["#no", "none.md", "page.md#no"]


def test_every_page_of_docs_is_linked() -> None:
    linked = {
        (path.parent / match["target"].partition("#")[0]).resolve()
        for path in PAGES
        for match in LINK.finditer(prose_of(path))
        if "://" not in match["target"] and not match["target"].startswith("#")
    }
    pages = {path for path in PAGES if ROOT / "docs" in path.parents}
    assert sorted(str(path.relative_to(ROOT)) for path in pages - linked) == []
