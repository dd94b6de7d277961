"""Build the optional compiled modules; everything else is in pyproject.toml.

Each ``.pyx`` file below ``src/roquet`` becomes a module of the package that it lies in. So does
each ``.py`` file with a ``.pxd`` beside it, which gives the attributes of its classes C types: the
same source runs with a compiler and without. A C compiler is needed and nothing else. Without one,
or with ``ROQUET_PURE=1``, the installation falls back to plain Python and says so in one line.

``ROQUET_CHECKED=1`` builds modules that check every index, every memory view and every assertion;
``ROQUET_CHECKED=sanitize`` adds the compiler's sanitizers of memory and of undefined behaviour.
Both are slow and for tests only: ``make checked`` builds them apart and runs tests with them.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "src"

CHECKED = os.environ.get("ROQUET_CHECKED", "")
IS_CHECKED = CHECKED not in {"", "0"}

DIRECTIVES = {
    "language_level": 3,
    "cdivision": True,
    "wraparound": False,
    "boundscheck": IS_CHECKED,
    "initializedcheck": IS_CHECKED,
    "nonecheck": IS_CHECKED,
    "profile": IS_CHECKED,
}
"""How Cython reads every module, and what the checked build changes."""

PYTHON_DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "boundscheck": True,
    "cdivision": False,
    "nonecheck": True,
    "wraparound": True,
    "profile": IS_CHECKED,
}
"""How it reads a module that also runs uncompiled: it must mean the same."""

SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


def warn_pure(reason: str) -> None:
    """Report in one line that, and why, a compiled module is skipped."""
    print(f"roquet: {reason}; installing plain Python, which is slower", file=sys.stderr)


class OptionalBuildExt(build_ext):
    """Builds all extensions, or none with one plain line instead of a compiler's output.

    They import each other, so having only some of them would be worse than none.
    """

    def finalize_options(self) -> None:
        """Compile on all processors unless told otherwise."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extension(self, ext: Extension) -> None:
        """Build one extension; a failing compiler is not an error."""
        if self.failed:
            return
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError, OSError):
            if IS_CHECKED:
                raise
            self.failed.append(ext.name)

    def run(self) -> None:
        """Build all extensions, and remove what was built if one of them fails."""
        self.failed: list[str] = []
        super().run()
        if self.failed:
            warn_pure(f"no working C compiler for {self.failed[0]}")
            for each in self.extensions:
                for built in (self.get_ext_fullpath(each.name), self._built(each.name)):
                    Path(built).unlink(missing_ok=True)

    def _built(self, name: str) -> str:
        """Where an extension is before it is copied into the source folder."""
        return str(Path(self.build_lib) / self.get_ext_filename(self.get_ext_fullname(name)))


def sources(pattern: str) -> list[str]:
    """Files of Roquet, relative to the project, as setuptools wants them."""
    found = sorted((SOURCE / "roquet").rglob(pattern))
    return [path.relative_to(ROOT).as_posix() for path in found]


def typed() -> list[str]:
    """Modules in Python whose classes have C types in a ``.pxd`` of the same name."""
    types = sources("*.pxd")
    return [source for source in sources("*.py") if f"{source.removesuffix('.py')}.pxd" in types]


def extension(source: str) -> Extension:
    """The module that a file becomes, for Cython."""
    return Extension(
        module_name(source),
        sources=[source],
        depends=sources("*.pxd") + sources("*.h"),
        include_dirs=["src"],
        extra_compile_args=compiler_flags(source),
        extra_link_args=sanitizers(),
    )


def module_name(source: str) -> str:
    """The module that a file becomes."""
    return ".".join(Path(source).with_suffix("").parts[1:])


def compiler_flags(source: str) -> list[str]:
    """How C is compiled: for speed, or for finding faults; loops over bytes gain most by -O3."""
    if sys.platform == "win32":
        return []
    if not IS_CHECKED:
        return ["-O3" if source.endswith(".pyx") else "-O1"]
    return ["-O1", "-g", "-UNDEBUG", *sanitizers()]


def sanitizers() -> list[str]:
    """The requested sanitizers, for compiler and linker."""
    return SANITIZERS if CHECKED == "sanitize" else []


def compiled_extensions() -> list[Extension]:
    """Return the extensions to build, or nothing if plain Python is requested."""
    if os.environ.get("ROQUET_PURE", "") not in {"", "0"}:
        warn_pure("ROQUET_PURE is set")
        return []
    try:
        from Cython.Build import cythonize  # noqa: PLC0415 - absent where the build is pure
    except ImportError:
        warn_pure("Cython is missing")
        return []
    extensions: list[Extension] = []
    for files, directives in ((sources("*.pyx"), DIRECTIVES), (typed(), PYTHON_DIRECTIVES)):
        extensions += cythonize(
            [extension(source) for source in files],
            compiler_directives=directives,
            include_path=["src"],
            build_dir="build/checked" if IS_CHECKED else None,
            quiet=True,
        )
    for built in extensions:
        # Set here because cythonize makes new objects and forgets the flag. It lets an editable
        # installation continue where the file was not built.
        built.optional = not IS_CHECKED
    return extensions


setup(ext_modules=compiled_extensions(), cmdclass={"build_ext": OptionalBuildExt})
