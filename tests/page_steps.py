"""Steps in the tables of a page, and the functions that are really called."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import roquet

INTERNALS = Path(__file__).parents[1] / "docs" / "internals"

_PACKAGE = Path(roquet.__file__).parent
_COMPILED = Path("src/roquet")
_ROW = re.compile(r"^\| \d+ \| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)

Step = tuple[str, str]
"""A file below the package, and a function in it."""


def steps_of(page: str, heading: str) -> list[Step]:
    """The steps of a table of a page."""
    text = (INTERNALS / page).read_text("utf-8")
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [(match[1], match[2]) for match in _ROW.finditer(section)]


class Way:
    """Records the functions of Roquet that a thread calls.

    Attributes:
        passed: All of them, in order, by file and name; a compiled one has no qualified name.
        calls: The file of the caller and that of the function, and its name.
    """

    def __init__(self) -> None:
        self.passed: list[Step] = []
        self.calls: list[tuple[str, str, str]] = []
        self._files: list[str] = []

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Record what this thread calls."""
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _arg: object) -> None:
        file = _file_of(frame)
        if file is None:
            return
        if event == "call":
            name = frame.f_code.co_name
            self.passed.append((file, name))
            self.calls.append((self._files[-1] if self._files else "", file, name))
            self._files.append(file)
        elif event == "return" and self._files:
            self._files.pop()

    def along(self, steps: list[Step]) -> list[Step]:
        """Which of these steps were passed, in the order of their first call."""
        wanted = {(file, name.rpartition(".")[2]): (file, name) for file, name in steps}
        return list(dict.fromkeys(wanted[step] for step in self.passed if step in wanted))


def _file_of(frame: FrameType) -> str | None:
    """The file of a function below the package; one that was compiled has a relative name."""
    path = Path(frame.f_code.co_filename)
    for root in (_PACKAGE, _COMPILED):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return None
