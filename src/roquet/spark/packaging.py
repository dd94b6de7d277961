"""Packs Roquet for executors that do not have it installed.

Executors on other machines have Python and pyarrow, as any PySpark job needs, but not Roquet. Owns
an archive with Roquet and its dependencies there; Spark unpacks it on every executor
(``spark.archives``) and adds the folder to Python's path. A wheel in ``--py-files`` would not work:
compiled modules cannot be imported from a zip file.

The archive has the compiled modules of the machine that built it. Executors use them if they have
the same Python version and platform, and plain Python otherwise.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

__all__ = ["FOLDER", "executor_conf", "pack"]

FOLDER = "roquet_packages"
"""The folder's name on executors."""

_PACKAGES = (
    "roquet",
    "pyspark_rocketmq",
    "pyspark_rocketmq_log",
    "pyspark_rocketmq_lake",
    "msgspec",
)
_OPTIONAL = ("zstandard", "lz4", "fsspec", "hdfs_native")
_LEFT_OUT = {"testing", "broker", "namesrv", "cli", "dashboard"}
"""Servers and commands are not packed."""


def _is_wanted(path: Path, base: Path) -> bool:
    parts = path.relative_to(base).parts
    if "__pycache__" in parts or path.suffix in {".pyx", ".pxd", ".h", ".c", ".pyi"}:
        return False
    return not (base.name == "roquet" and parts[0] in _LEFT_OUT)


def _package_folder(name: str) -> Path | None:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _files() -> Iterator[tuple[Path, str]]:
    """Yield every file and its name in the archive."""
    for name in (*_PACKAGES, *_OPTIONAL):
        base = _package_folder(name)
        if base is None:
            continue
        for path in sorted(base.rglob("*")):
            if path.is_file() and _is_wanted(path, base):
                yield path, f"{name}/{path.relative_to(base)}"


def pack(path: Path) -> Path:
    """Write the archive, a ``.tar.gz``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for file, name in _files():
            archive.add(file, arcname=name)
    return path


def executor_conf(archive: Path, master: str) -> dict[str, str]:
    """Return the Spark settings that make executors use the archive.

    Args:
        archive: The archive that :func:`pack` wrote.
        master: Where the session runs; YARN distributes archives itself.
    """
    setting = "spark.yarn.dist.archives" if master == "yarn" else "spark.archives"
    return {
        setting: f"{archive}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
    }
