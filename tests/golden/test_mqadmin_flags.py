"""Help and flags of ``roquet mqadmin`` are those of the admin tool of Apache RocketMQ 5.4.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from roquet.cli.main import roquet
from roquet.cli.mqadmin.catalogue import all_specs, find_spec
from roquet.cli.mqadmin.commons_cli import BadFlags, parse_flags

DATA = Path(__file__).parent / "data" / "mqadmin"
HELP: dict[str, str] = json.loads((DATA / "help.json").read_text("utf-8"))
PARSED: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "flags.jsonl").read_text("utf-8").splitlines()
]


def run(*words: str) -> str:
    result = CliRunner().invoke(roquet, ["mqadmin", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_commands_are_upstreams() -> None:
    assert [spec.name for spec in all_specs()] == list(HELP)
    assert run() == (DATA / "commands.txt").read_text("utf-8")
    assert run("--help") == run()


@pytest.mark.parametrize("name", HELP)
def test_help(name: str) -> None:
    assert run("help", name) == HELP[name]


@pytest.mark.parametrize("case", PARSED, ids=lambda case: " ".join(case["words"]))
def test_flags(case: dict[str, Any]) -> None:
    name, *words = case["words"]
    spec = find_spec(name)
    assert spec is not None
    if "error" in case:
        with pytest.raises(BadFlags) as raised:
            parse_flags(spec, words)
        assert str(raised.value) == case["error"]
        return
    flags = parse_flags(spec, words)
    first: dict[str, str | None] = {}
    for key, value in case["options"]:
        if first.get(key) is None:
            first[key] = value
    found = {flag.key: flags.get(flag.key) for flag in spec.flags if flag.key in flags}
    assert found == {key: value and value.strip() for key, value in first.items()}
