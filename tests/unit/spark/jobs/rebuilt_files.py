"""Files of a store that a rebuild makes, to be compared with others."""

from __future__ import annotations

from pathlib import Path

SPLITS = [1 << 27, 8192, 1000]


def _files(base: Path) -> dict[str, bytes]:
    return {
        path.relative_to(base).as_posix(): path.read_bytes()
        for path in sorted(base.rglob("*"))
        if path.is_file()
    }


def queues(root: Path) -> dict[str, bytes]:
    return _files(root / "consumequeue")


def extensions(root: Path) -> dict[str, bytes]:
    return _files(root / "consumequeue_ext")


def index(root: Path) -> list[bytes]:
    """Index files in order; their names are times of creation, which no log tells."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]
