"""Checks that the packages of the extra ``spark`` are installed.

Imports none of them, so it can run before anything that does.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

from roquet.errors import SparkMissing

__all__ = ["check_extra", "installed_version"]

PACKAGES = ("pyspark", "pyarrow", "numpy")
PYSPARK_MIN = (4, 2)


def check_extra() -> None:
    """Raise unless every package that pipelines, sources and the sink import is installed.

    Raises:
        SparkMissing: A package is not installed, or pyspark is too old.
    """
    missing = [name for name in PACKAGES if not _is_importable(name)]
    if missing:
        words = "this package is" if len(missing) == 1 else "these packages are"
        raise SparkMissing(
            f"This needs Spark, and {words} not installed: {', '.join(missing)}.",
            hint="Install it with: pip install 'roquet[spark]'",
        )
    found = installed_version("pyspark")
    if found is not None and tuple(int(part) for part in found.split(".")[:2]) < PYSPARK_MIN:
        raise SparkMissing(
            f"This needs pyspark {'.'.join(map(str, PYSPARK_MIN))} or newer; {found} is installed.",
            hint="Update it with: pip install --upgrade 'roquet[spark]'",
        )


def installed_version(package: str) -> str | None:
    """Return the version of a package; ``None`` if it is not installed."""
    try:
        return distribution(package).version
    except PackageNotFoundError:
        return None


def _is_importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
