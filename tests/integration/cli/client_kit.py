"""Commands that are clients, run inside the test against a broker in a thread."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from roquet.cli.main import roquet
from roquet.testing.background import BackgroundBroker
from tests.patience import TIMEOUT_MS


def call(broker: BackgroundBroker, *arguments: str, input: bytes | str | None = None) -> Result:  # noqa: A002 - click's name
    """Run a command with the name server of a broker; requests may take their time."""
    more = ["-n", broker.namesrv]
    if "mqadmin" not in arguments:
        more += ["--timeout", f"{TIMEOUT_MS}ms"]
    return CliRunner().invoke(roquet, [*arguments, *more], input=input)


def done(broker: BackgroundBroker, *arguments: str, input: bytes | str | None = None) -> str:  # noqa: A002 - click's name
    """Run a command that is expected to succeed; what it wrote to standard output."""
    result = call(broker, *arguments, input=input)
    assert result.exit_code == 0, result.output
    return result.stdout


def of_json(broker: BackgroundBroker, *arguments: str) -> Any:  # noqa: ANN401 - whatever it is
    """What a command with ``--json`` wrote."""
    return json.loads(done(broker, *arguments, "--json"))
