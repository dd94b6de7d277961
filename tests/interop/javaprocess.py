"""One Java virtual machine of the oracle as a child process with a log file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.javabuild import JavaToolkit
from tests.interop.process import ChildProcess, find_free_port

__all__ = ["OPENED_INTERNALS", "QUICK_JVM", "JavaProcess", "find_free_port"]

# Small and quick to start: no optimising compiler, no parallel collector.
QUICK_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# RocketMQ frees its mapped buffers through internals of the JDK.
OPENED_INTERNALS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)


class JavaProcess(ChildProcess):
    """A running Java program.

    Args:
        toolkit: The built classpath.
        name: Short name, for the log file and for messages.
        main_class: What to run.
        arguments: Its arguments.
        folder: Its home, working directory and place of its log; made when missing.
        jvm_options: How the virtual machine runs.
        piped: Whether standard input and output are pipes.
    """

    def __init__(
        self,
        toolkit: JavaToolkit,
        name: str,
        main_class: str,
        *,
        arguments: Sequence[str],
        folder: Path,
        jvm_options: Sequence[str] = QUICK_JVM,
        piped: bool = False,
    ) -> None:
        (folder / "conf").mkdir(parents=True, exist_ok=True)
        for server in ("broker", "namesrv"):
            # Servers of version 4 do not start without it.
            (folder / "conf" / f"logback_{server}.xml").write_text("<configuration/>")
        super().__init__(
            name,
            [
                toolkit.java,
                *jvm_options,
                *OPENED_INTERNALS,
                f"-Duser.home={folder}",
                "-cp",
                toolkit.classpath,
                main_class,
                *arguments,
            ],
            folder=folder,
            environment={"ROCKETMQ_HOME": str(folder), "LC_ALL": "C.UTF-8"},
            piped=piped,
        )
