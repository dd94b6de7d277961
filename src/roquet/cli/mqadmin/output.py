"""What a command prints: upstream's text, or the same facts as JSON.

In text the words go out as they come. With ``--json`` one line is printed at the end:
``{"command": …, "results": [{…}, …]}``, one result for each thing that the command tells.
"""

from __future__ import annotations

import click

from roquet.cli.mqadmin.failures import JavaFailure
from roquet.cli.output import print_json

__all__ = ["Output"]


class Output:
    """Takes what a command tells.

    Args:
        as_json: Whether it is for programs.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._results: list[dict[str, object]] = []

    def say(self, text: str, **facts: object) -> None:
        """Tell something.

        Args:
            text: Upstream's words, with line breaks.
            facts: What they say, for programs; a text without facts is a heading.
        """
        if not self.as_json:
            click.echo(text, nl=False)
        elif facts:
            self._results.append(facts)

    def fail(self, failure: JavaFailure) -> None:
        """Tell a failure after which the command goes on."""
        if self.as_json:
            self._results.append({"error": facts_of(failure)})
        else:
            click.echo(str(failure), err=True)

    def finish(self, command: str) -> None:
        """Print the facts, if they are wanted."""
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
