"""Build the optional extensions, the compiled lanes; everything else is in pyproject.toml.

``roquet._fast`` is the lane of the store, ``roquet._wire`` that of the wire, ``roquet._sends`` and
``roquet._records`` those of producers and consumers; ``roquet._frame`` reads and writes frames for
sends and answers, and ``roquet._counts`` counts what the wire moves. ``roquet._arrow`` turns the
log into columns for Spark. They need a C compiler and nothing else. Without one, or with
``ROQUET_PURE=1``, the installation goes on with the pure Python lane and says so in one line.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent
LANES = ("_arrow", "_counts", "_fast", "_frame", "_records", "_sends", "_wire")
SHARED = [
    "src/roquet/_bytes.h",
    "src/roquet/_counts.pxd",
    "src/roquet/_crc32.h",
    "src/roquet/_fast.pxd",
    "src/roquet/_frame.pxd",
    "src/roquet/_text.h",
    "src/roquet/_utf8.h",
]


def warn_pure(reason: str) -> None:
    """Say in one line that, and why, an extension is left out."""
    print(f"roquet: {reason}; installing the pure Python lane", file=sys.stderr)


class OptionalBuildExt(build_ext):
    """Builds extensions, or leaves them out with one plain line instead of a compiler's novel."""

    def build_extension(self, ext: Extension) -> None:
        """Build one extension; a failing compiler is not an error."""
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError, OSError):
            warn_pure(f"no working C compiler for {ext.name}")


def fast_extensions() -> list[Extension]:
    """Return the extensions to build, or nothing where the pure lane is asked for."""
    if os.environ.get("ROQUET_PURE", "") not in {"", "0"}:
        warn_pure("ROQUET_PURE is set")
        return []
    if not all((ROOT / "src" / "roquet" / f"{name}.pyx").exists() for name in LANES):
        return []
    try:
        from Cython.Build import cythonize  # noqa: PLC0415 - absent where the build is pure
    except ImportError:
        warn_pure("Cython is missing")
        return []
    lanes = [
        Extension(
            f"roquet.{name}",
            sources=[f"src/roquet/{name}.pyx"],
            depends=SHARED,
            include_dirs=["src/roquet"],
            extra_compile_args=[] if sys.platform == "win32" else ["-O3"],
        )
        for name in LANES
    ]
    extensions: list[Extension] = cythonize(
        lanes, language_level=3, include_path=["src"], quiet=True
    )
    for built in extensions:
        # Set here because cythonize makes new objects and forgets the flag. It lets an editable
        # installation go on where the file was not built.
        built.optional = True
    return extensions


setup(ext_modules=fast_extensions(), cmdclass={"build_ext": OptionalBuildExt})
