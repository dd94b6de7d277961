import json
import os
import subprocess
import sys
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

import roquet as package
from roquet.cli import main as cli
from roquet.cli.lazy import LazyCommand
from roquet.cli.main import roquet
from roquet.cli.output import json_option
from roquet.errors import ConfigError, NotAStore, RoquetError
from roquet.runtime import compiled

FAILURE = NotAStore("Not a store.", detail="no commitlog", hint="Name another directory.")


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a sub-command that raises to the table, and one that is no command at all."""

    @click.command()
    @json_option
    def broken(*, as_json: bool) -> None:
        del as_json
        raise FAILURE

    @click.command()
    def misconfigured() -> None:
        message = "Bad key."
        raise ConfigError(message)

    module = ModuleType("roquet_test_commands")
    vars(module).update(broken=broken, misconfigured=misconfigured, number=1)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("broken", "misconfigured", "number"):
        entry = LazyCommand(f"{module.__name__}:{name}", f"Summary of {name}.")
        monkeypatch.setitem(cli.COMMANDS, name, entry)


def test_version() -> None:
    result = CliRunner().invoke(roquet, ["--version"])
    said = f"roquet {package.__version__} ({compiled.path_in_use()})\n"
    assert (result.exit_code, result.output) == (0, said)


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "roquet", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"roquet {package.__version__} ({compiled.path_in_use()})\n"


def test_version_names_the_reference_path() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "roquet", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ROQUET_PURE": "1"},
    )
    said = f"roquet {package.__version__} (reference path, slower: ROQUET_PURE is set)\n"
    assert done.stdout == said


def test_help_lists_commands_without_importing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "COMMANDS", {"ghost": LazyCommand("no_such:thing", "Is not there.")})
    result = CliRunner().invoke(roquet, ["-h"])
    assert result.exit_code == 0
    assert "ghost" in result.output
    assert "Is not there." in result.output


def test_unknown_command_is_bad_usage() -> None:
    result = CliRunner().invoke(roquet, ["nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.stderr


@pytest.mark.usefixtures("breaking")
def test_an_error_is_text_on_stderr_and_an_exit_code() -> None:
    result = CliRunner().invoke(roquet, ["broken"])
    assert result.exit_code == NotAStore.exit_code
    assert result.stdout == ""
    assert result.stderr == (
        "Error: Not a store.\nDETAIL: no commitlog\nHINT: Name another directory.\n"
    )


@pytest.mark.usefixtures("breaking")
def test_exit_code_is_that_of_the_error() -> None:
    assert CliRunner().invoke(roquet, ["misconfigured"]).exit_code == 2


@pytest.mark.usefixtures("breaking")
def test_an_error_is_json_when_json_was_requested() -> None:
    result = CliRunner().invoke(roquet, ["broken", "--json"])
    assert result.exit_code == NotAStore.exit_code
    assert result.stdout == ""
    assert json.loads(result.stderr) == {
        "error": {
            "type": "NotAStore",
            "code": "not_a_store",
            "message": "Not a store.",
            "detail": "no commitlog",
            "hint": "Name another directory.",
            "retriable": False,
        }
    }


@pytest.mark.usefixtures("breaking")
def test_a_wrong_table_entry_is_a_programming_error() -> None:
    result = CliRunner().invoke(roquet, ["number"])
    assert isinstance(result.exception, TypeError)
    assert not isinstance(result.exception, RoquetError)
