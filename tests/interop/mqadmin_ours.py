"""``roquet mqadmin`` in the place of the admin tool of Apache RocketMQ."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from roquet.cli.main import roquet
from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.mqadmin.tool import Tool
from tests.interop.javaclient import AdminOutcome

__all__ = ["OurTool"]


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
        pause = _interrupted if endless else Tool.pause
        with chdir(self._folder), mock.patch.object(Tool, "pause", pause):
            result = CliRunner().invoke(roquet, ["mqadmin", *words, "-n", namesrv])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return AdminOutcome(printed=result.stdout, failures=result.stderr)
