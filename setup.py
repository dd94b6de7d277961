"""Build the optional extension ``roquet._fast``; everything else is in pyproject.toml.

The extension needs a C compiler and nothing else. Without one, or with ``ROQUET_PURE=1``, the
installation goes on with the pure Python lane and says so in one line.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent
FAST_SOURCE = "src/roquet/_fast.pyx"
FAST_HEADER = "src/roquet/_crc32.h"
FAST_INTERFACE = "src/roquet/_fast.pxd"


def warn_pure(reason: str) -> None:
    """Say in one line that, and why, the extension is left out."""
    print(f"roquet: {reason}; installing the pure Python lane", file=sys.stderr)


class OptionalBuildExt(build_ext):
    """Builds the extension, or leaves it out with one plain line instead of a compiler's novel."""

    def build_extension(self, ext: Extension) -> None:
        """Build one extension; a failing compiler is not an error."""
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError, OSError):
            warn_pure(f"no working C compiler for {ext.name}")


def fast_extensions() -> list[Extension]:
    """Return the extension to build, or nothing where the pure lane is asked for."""
    if os.environ.get("ROQUET_PURE", "") not in {"", "0"}:
        warn_pure("ROQUET_PURE is set")
        return []
    if not (ROOT / FAST_SOURCE).exists():
        return []
    try:
        from Cython.Build import cythonize  # noqa: PLC0415 - absent where the build is pure
    except ImportError:
        warn_pure("Cython is missing")
        return []
    extension = Extension(
        "roquet._fast",
        sources=[FAST_SOURCE],
        depends=[FAST_HEADER, FAST_INTERFACE],
        include_dirs=["src/roquet"],
        extra_compile_args=[] if sys.platform == "win32" else ["-O3"],
    )
    extensions: list[Extension] = cythonize([extension], language_level=3, quiet=True)
    for built in extensions:
        # Set here because cythonize makes new objects and forgets the flag. It lets an editable
        # installation go on where the file was not built.
        built.optional = True
    return extensions


setup(ext_modules=fast_extensions(), cmdclass={"build_ext": OptionalBuildExt})
