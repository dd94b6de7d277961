"""What a command prints: upstream's text, or the same facts as JSON.

Text is printed at once. With ``--json`` one line is printed at the end: ``{"command": …, "results":
[{…}, …]}``, with one result per item.
"""

from __future__ import annotations

import click

from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.output import print_json

__all__ = ["Output"]


class Output:
    """The output of a command.

    Args:
        as_json: Whether to print JSON.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._results: list[dict[str, object]] = []

    def say(self, text: str, **facts: object) -> None:
        """Print an item.

        Args:
            text: Upstream's text, with line breaks.
            facts: The same for programs; a text without facts is a heading.
        """
        if not self.as_json:
            click.echo(text, nl=False)
        elif facts:
            self._results.append(facts)

    def fail(self, failure: JavaFailure) -> None:
        """Print a failure after which the command continues."""
        if self.as_json:
            self._results.append({"error": facts_of(failure)})
        else:
            click.echo(str(failure), err=True)

    def finish(self, command: str) -> None:
        """Print the JSON, if requested."""
        if self.as_json:
            print_json({"command": command, "results": self._results})


def facts_of(failure: JavaFailure) -> dict[str, object]:
    """A failure, for programs."""
    inner = failure if failure.cause is None else failure.cause
    return {
        "type": inner.java_class.rpartition(".")[2],
        "code": inner.code,
        "message": inner.remark or inner.text,
    }
