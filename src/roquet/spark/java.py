"""Finds the Java that Spark runs on and checks its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from roquet.errors import JavaMissing

__all__ = ["JAVA_MIN", "Java", "find_java", "parse_version"]

JAVA_MIN = 17
_HINT = (
    f"Install Java {JAVA_MIN} or newer (apt-get install default-jre-headless), "
    "or set JAVA_HOME to one."
)
_TIMEOUT_S = 30


class Java:
    """A Java that can run Spark.

    Attributes:
        path: The program.
        version: The version that it prints, such as ``17.0.15``.
    """

    def __init__(self, path: Path, version: str) -> None:
        self.path = path
        self.version = version


def parse_version(printed: str) -> str | None:
    """Return the version in the output of ``java -version``.

    Example:
        >>> parse_version('openjdk version "17.0.15" 2025-04-15')
        '17.0.15'
        >>> parse_version('java version "1.8.0_392"')
        '1.8.0_392'
    """
    match = re.search(r'version "([^"]+)"', printed)
    return match[1] if match else None


def find_java() -> Java:
    """Return the Java that Spark would start.

    Raises:
        JavaMissing: There is none, it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise JavaMissing("Spark needs Java, which is not installed.", hint=_HINT)
    try:
        ended = subprocess.run(  # noqa: S603 - the program that Spark itself would start
            [found, "-version"], check=True, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(
            "Spark needs Java, but the installed one does not run.",
            detail=f"{found} -version: {error}",
            hint=_HINT,
        ) from None
    version = parse_version(ended.stderr + ended.stdout)
    if version is None or _major(version) < JAVA_MIN:
        raise JavaMissing(
            f"Spark needs Java {JAVA_MIN} or newer.",
            detail=f"{found} is {version or 'of an unknown version'}",
            hint=_HINT,
        )
    return Java(Path(found), version)


def _major(version: str) -> int:
    parts = re.findall(r"\d+", version)
    if not parts:
        return 0
    # Up to version 8 the number comes second: 1.8.0.
    return int(parts[1]) if parts[0] == "1" and len(parts) > 1 else int(parts[0])
