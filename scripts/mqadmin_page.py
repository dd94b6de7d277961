#!/usr/bin/env python3
"""The page ``docs/reference/mqadmin.md``: every command of upstream's tool, and whether it is here.

Made from ``roquet.cli.mqadmin``. Run without arguments it writes the page; with ``--check`` it only
looks whether the page is current, and ends with 1 if it is not.
"""

from __future__ import annotations

import sys
from pathlib import Path

from roquet.cli.mqadmin.catalogue import Flag, Spec, all_specs

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "mqadmin.md"

INTRODUCTION = """\
# roquet mqadmin

`roquet mqadmin SUBCOMMAND` is the admin tool of Apache RocketMQ 5.4.0 without Java: the same
commands, the same flags, the same text, the same exit codes. Scripts that call `sh mqadmin` and
parse what it prints go on working with `roquet mqadmin` in its place, at Roquet and at Apache
RocketMQ. {built} of upstream's {count} commands are here; the others are refused by name. This page
is made by `python scripts/mqadmin_page.py`; change the tables in `src/roquet/cli/mqadmin`, not the
page.

```
roquet mqadmin                                  # the commands
roquet mqadmin help topicRoute                  # the flags of one
roquet mqadmin topicRoute -t Orders -n 127.0.0.1:9876
roquet mqadmin consumerProgress -g billing --json
```

## What is the same

* Names, in whatever case. Flags as Apache Commons CLI reads them: short, long, long ones cut short,
  `-t=Orders`, `-tOrders`, `--topic=Orders`.
* What goes to standard output, to the blank: columns, words, formats of dates, and the order of
  lines, which is that of Java's hash tables.
* What goes to standard error when something fails, except for the lines of the Java stack.
* Exit codes: 1 when the flags cannot be read, otherwise 0, even if the command failed, as upstream.

## What is Roquet's own

* `--json` prints one line, `{{"command": …, "results": [{{…}}, …]}}`, instead of text. A failure is
  then one line of JSON on standard error, and ends with 1.
* Without `-n`, the name servers, keys and TLS are those of the flags before `mqadmin`, of the
  current context or of the environment, as for every client command: see
  [cli-client.md](cli-client.md).
* Keys are not read from `conf/tools.yml`; a context or the environment has them.
* A command that is refused by name says why, and ends with 2.
* `queryMsgById` asks only brokers of the cluster, whatever address an id names.
* Bodies of messages are written to `rocketmq/msgbodys` in the folder for temporary files; an id
  that has not the form of one is not used as a name of a file.
* `dumpCompactionLog` prints messages whose topic holds a `%`, at which upstream's tool fails.
* An endless command (`-i`, `clusterRT`) ends with 130 at SIGINT.

## Commands

A bold flag is required; of bold `-b` and `-c`, one of them may be enough. All have `-n` and `-h`.
"""


def page() -> str:
    """The whole page."""
    specs = all_specs()
    built = [spec for spec in specs if spec.refusal is None]
    lines = [
        INTRODUCTION.format(built=len(built), count=len(specs)),
        "| command | flags | what it does | |",
        "|---|---|---|---|",
        *(_row(spec) for spec in specs),
    ]
    return "\n".join(lines) + "\n"


def _row(spec: Spec) -> str:
    flags = " ".join(_flag(flag) for flag in spec.flags if flag.short not in {"h", "n"})
    status = f"refused: {spec.refusal}" if spec.refusal else "here"
    return f"| `{spec.name}` | {flags} | {_cell(spec.summary)} | {status} |"


def _flag(flag: Flag) -> str:
    name = f"-{flag.short}" if flag.short else f"--{flag.long}"
    return f"**`{name}`**" if flag.is_required or flag.group else f"`{name}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    """Write or check the page."""
    text = page()
    if sys.argv[1:] == ["--check"]:
        return 0 if PAGE.read_text("utf-8") == text else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
