"""The pages of the documentation, and the code blocks in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "benchmarks" / "README.md",
        ROOT / "examples" / "README.md",
    ]
)
NAMESRV = "127.0.0.1:9876"
"""Where the pages say that the name server listens."""
DATA = "roquet-data"
"""Where they say that ``roquet dev`` has its files, in the folder of the reader."""

_FENCE = re.compile(r"(?P<indent> *)```(?P<language>\S*)")


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        page: The page, relative to the project.
        line: The number of its first line of code.
        language: What follows the fence.
        code: The lines between the fences, without the indent that a list gives them.
    """

    page: str
    line: int
    language: str
    code: str

    @property
    def where(self) -> str:
        """The page and the line, as editors and terminals link them."""
        return f"{self.page}:{self.line}"

    @property
    def is_spark(self) -> bool:
        """Whether it needs a session of Spark."""
        return "SparkSession" in self.code

    def at(self, namesrv: str, folder: Path = Path(DATA)) -> str:
        """The code with the address, and the folder, of a broker that a test has started."""
        return self.code.replace(NAMESRV, namesrv).replace(DATA, str(folder))


def blocks_of(path: Path) -> Iterator[Block]:
    """The blocks of a page, from top to bottom."""
    page = str(path.relative_to(ROOT))
    opened: re.Match[str] | None = None
    first, code = 0, ""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is not None and fence is not None:
            yield Block(page, first, opened["language"], code)
            opened = None
        elif opened is not None:
            code += line.removeprefix(opened["indent"]) + "\n"
        elif fence is not None:
            opened, first, code = fence, number + 1, ""
    assert opened is None, f"{page} has a block without an end"


BLOCKS = [block for path in PAGES for block in blocks_of(path)]


def prose_of(path: Path) -> str:
    """The text of a page without its blocks."""
    lines = path.read_text("utf-8").splitlines()
    is_inside = False
    kept = []
    for line in lines:
        if _FENCE.match(line):
            is_inside = not is_inside
        elif not is_inside:
            kept.append(line)
    return "\n".join(kept)
