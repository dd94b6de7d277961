"""Builds the Java side of the interop tests once, or names what is missing.

Owns the cache directory `.build/`: one folder per state of the sources and of the pom, made by
Maven under a file lock, so that parallel test processes build once and the others wait. A folder is
valid when its `classpath` file is there; that file is written last.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ORACLE_PROJECT = HERE / "java"
AGENT_PROJECT = HERE / "javaagent"
SERVER_PROJECT = HERE / "javaserver"
CACHE = HERE / ".build"

JAVA_MAJOR_MIN = 17
BUILD_TIMEOUT_S = 280

# What Maven prints when it cannot reach its repository; anything else is a fault of the build.
NETWORK_FAULTS = (
    "Could not transfer",
    "Unknown host",
    "UnknownHost",
    "Connection refused",
    "Connection timed out",
    "Connect timed out",
    "Network is unreachable",
    "Temporary failure in name resolution",
    "offline mode",
)


class OracleMissingError(Exception):
    """Something that this machine does not have; the message names it."""


class OracleBuildError(Exception):
    """The build itself failed; the message ends with Maven's last lines."""


@dataclass(frozen=True)
class JavaToolkit:
    """What is needed to run a Java program of the oracle.

    Attributes:
        java: Path of the `java` program.
        classpath: Our classes, then Apache RocketMQ's jars.
    """

    java: str
    classpath: str


def is_required() -> bool:
    """Whether a failed build must fail the tests instead of skipping them."""
    return os.environ.get("CI") == "true" and _tools_found()


def build(project: Path = ORACLE_PROJECT, version: str = "5.4.0") -> JavaToolkit:
    """Builds, or finds the earlier build.

    Args:
        project: The folder of the pom.
        version: Of Apache RocketMQ.

    Raises:
        OracleMissingError: Java, a JDK's compiler, Maven or the network is missing.
        OracleBuildError: everything is there and the build fails.
    """
    java = _find("java", "Java 17 or newer")
    _find("javac", "javac (a JDK, not only a Java runtime)")
    maven = _find("mvn", "Maven (mvn)")
    _check_java_version(java)
    CACHE.mkdir(exist_ok=True)
    folder = CACHE / _digest(project, version)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        classpath = _read_classpath(folder)
        if classpath is None:
            _run_maven(maven, folder, project, version)
            classpath = _read_classpath(folder)
    if classpath is None:
        raise OracleBuildError("Maven succeeded but a jar of the classpath is not there")
    return JavaToolkit(java=java, classpath=classpath)


def _tools_found() -> bool:
    return shutil.which("java") is not None and shutil.which("mvn") is not None


def _find(program: str, name: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise OracleMissingError(f"{name} is missing")
    return path


def _check_java_version(java: str) -> None:
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', answer.stderr)
    major = int(match.group(1)) if match else 0
    if major < JAVA_MAJOR_MIN:
        raise OracleMissingError(f"Java {JAVA_MAJOR_MIN} or newer is missing: `java` is {major}")


def _digest(project: Path, version: str) -> str:
    digest = hashlib.sha256(version.encode())
    sources = sorted(path for path in (project / "src").rglob("*") if path.is_file())
    for path in [project / "pom.xml", *sources]:
        digest.update(path.relative_to(project).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _read_classpath(folder: Path) -> str | None:
    """The classpath of a finished build; None when there is none or its jars have gone."""
    try:
        jars = (folder / "classpath").read_text().strip()
    except FileNotFoundError:
        return None
    if not all(Path(jar).is_file() for jar in jars.split(os.pathsep)):
        return None
    return os.pathsep.join([str(folder / "classes"), jars])


def _run_maven(maven: str, folder: Path, project: Path, version: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    partial = folder / "classpath.partial"
    command = [
        maven, "--quiet", "--batch-mode",
        "--file", str(project / "pom.xml"),
        f"-Droquet.build={folder}", f"-Drocketmq.version={version}",
        "compile", "dependency:build-classpath", f"-Dmdep.outputFile={partial}",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OracleMissingError(
            f"a network that brings the jars within {BUILD_TIMEOUT_S} s is missing"
        ) from error
    if done.returncode == 0:
        partial.rename(folder / "classpath")
        return
    tail = "\n".join(done.stdout.splitlines()[-15:])
    if any(fault in done.stdout for fault in NETWORK_FAULTS):
        raise OracleMissingError(
            f"the network to a Maven repository is missing; Maven said:\n{tail}"
        )
    raise OracleBuildError(f"Maven failed with exit code {done.returncode}:\n{tail}")
