"""``roquet mqadmin`` in the place of the admin tool of Apache RocketMQ."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest import mock

from click.testing import CliRunner, Result

from roquet.cli.main import roquet
from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.mqadmin.tool import Tool
from tests.interop.javaclient import AdminOutcome

__all__ = ["OurTool"]

JAVA_TEMPORARY = "/tmp"  # noqa: S108 - Java's folder for temporary files, whatever TMPDIR says


async def _interrupted(_tool: Tool, _seconds: float) -> None:
    raise JavaFailure("java.lang.InterruptedException", "sleep interrupted")


class OurTool:
    """Runs commands in this process.

    Args:
        folder: Where commands put their files.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder

    def run_mqadmin(
        self, namesrv: str, words: Sequence[str], *, endless: bool = False
    ) -> AdminOutcome:
        """Runs a command; see `JavaClient.run_mqadmin`."""
        result = self._run([*words, "-n", namesrv], endless=endless)
        assert result.exit_code == 0, result.output
        return AdminOutcome(printed=result.stdout, failures=result.stderr)

    def run_json(self, namesrv: str, words: Sequence[str]) -> list[dict[str, Any]]:
        """The facts that a command prints with `--json`; for one that fails, its error."""
        result = self._run([*words, "-n", namesrv, "--json"])
        if result.exit_code == 1:
            return [json.loads(result.stderr)]
        found = json.loads(result.stdout)
        assert (result.exit_code, found["command"]) == (0, words[0])
        return list(found["results"])

    def _run(self, words: Sequence[str], *, endless: bool = False) -> Result:
        pause = _interrupted if endless else Tool.pause
        with (
            chdir(self._folder),
            mock.patch.object(Tool, "pause", pause),
            mock.patch.object(tempfile, "tempdir", JAVA_TEMPORARY),
        ):
            result = CliRunner().invoke(roquet, ["mqadmin", *words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result
