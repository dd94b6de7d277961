#!/usr/bin/env python3
"""The page ``docs/reference/request-codes.md``: every request code, and what Roquet does with it.

Made from the table in ``roquet.remoting.codes`` and from the processors that broker and name server
declare. Run without arguments it writes the page; with ``--check`` it only looks whether the page
is current, and ends with 1 if it is not.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from roquet import broker, namesrv
from roquet.remoting.codes import Handler, RequestCode
from roquet.remoting.processor import declared_codes

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "request-codes.md"

SERVERS = {Handler.BROKER: broker, Handler.NAMESRV: namesrv}
SERVER_LABELS = {Handler.BROKER: "broker", Handler.NAMESRV: "name server"}

UNBUILT: dict[str, frozenset[int]] = {
    "timers": frozenset({60, 61, 5001}),
    "POP, and balancing by the broker": frozenset({400, 401, 402, *range(200050, 200057), 200151}),
    "RocksDB": frozenset({354, 355}),
    "static topics": frozenset({513}),
    "replication": frozenset({905, 906, 1008}),
    "control of cold reads": frozenset(range(2001, 2005)),
    "users and policies": frozenset(range(3001, 3011)),
    "controllers": frozenset({*range(1001, 1007), *range(1009, 1019)}),
    "several brokers in one process": frozenset({902, 903}),
}
"""What has to be built before a code can be served."""

INTRODUCTION = """\
# Request codes

What Roquet does with each of the {count} request codes of Apache RocketMQ 5.4.0. This page is made
by `python scripts/request_codes_page.py` from the table in `src/roquet/remoting/codes.py` and from
the processors that are declared; change those, not the page. [protocol.md](protocol.md) has the
headers and bodies of each code.

| status | codes | meaning |
|---|---|---|
| served | {served} | a processor of the broker or of the name server answers |
| sent | {sent} | for clients only: the broker sends it to them |
| refused | {refused} | answered with code 3 and a remark; what is missing for it is named |

The remark is ` request type NUMBER not supported: NAME`. A number that has no name here, such as
one of a later release, gets the same without a name, which is upstream's. *Handled upstream by*
says who answers the code in Apache RocketMQ; the broker refuses what belongs to the name server,
and the reverse, as upstream does. *Since* is the first release that has the code, where 4.1.0 is
the oldest that was looked at.
"""


class Place(NamedTuple):
    """Where a code is handled: who does it, and in which module."""

    server: Handler
    module: str


def declared() -> dict[int, list[Place]]:
    """The places of all declared processors, by code."""
    places: dict[int, list[Place]] = {}
    for server, package in SERVERS.items():
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for function in _functions(module.name):
                for code in declared_codes(function):
                    known = places.setdefault(code, [])
                    place = Place(server, module.name)
                    if place not in known:
                        known.append(place)
    return places


def _functions(module_name: str) -> Iterator[object]:
    for each in vars(importlib.import_module(module_name)).values():
        if getattr(each, "__module__", None) != module_name:
            continue
        if inspect.isclass(each):
            yield from vars(each).values()
        else:
            yield each


def senders() -> dict[RequestCode, str]:
    """The modules of the broker that send codes which only clients handle."""
    found: dict[RequestCode, str] = {}
    folder = Path(broker.__path__[0])
    texts = {path: path.read_text("utf-8") for path in sorted(folder.rglob("*.py"))}
    for code in RequestCode:
        if code.handlers is not Handler.CLIENT:
            continue
        for path, text in texts.items():
            if f"RequestCode.{code.name}" in text:
                found[code] = ".".join(path.relative_to(folder.parents[1]).with_suffix("").parts)
    return found


def _refusal(code: RequestCode) -> str:
    if code.handlers is Handler.NONE:
        return "refused, as upstream"
    [missing] = [name for name, codes in UNBUILT.items() if int(code) in codes]
    return f"refused: {missing}"


def request_codes_page() -> str:
    """The whole page."""
    places, sent_by = declared(), senders()
    rows: list[str] = []
    counts = {"served": 0, "sent": 0, "refused": 0}
    for code in sorted(RequestCode):
        found = places.get(int(code), [])
        if found:
            status = "served"
            shown = ", ".join(SERVER_LABELS[place.server] for place in found)
            text = f"served by the {shown}"
            where = "<br>".join(f"`{place.module}`" for place in found)
        elif code in sent_by:
            status, text, where = "sent", "sent to clients", f"`{sent_by[code]}`"
        else:
            status, text, where = "refused", _refusal(code), ""
        counts[status] += 1
        handlers = code.handlers.label.replace("namesrv", "name server")
        rows.append(
            f"| {int(code)} | `{code.name}` | {code.purpose} | {handlers} | {text} "
            f"| {code.since} | {where} |"
        )
    return (
        INTRODUCTION.format(count=len(rows), **counts)
        + "\n| code | name | purpose | handled upstream by | in Roquet | since | where |\n"
        + "|---|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def main(arguments: list[str]) -> int:
    """Write the page, or see whether it is current."""
    page = request_codes_page()
    if arguments == ["--check"]:
        is_current = PAGE.exists() and PAGE.read_text("utf-8") == page
        if not is_current:
            sys.stdout.write(f"{PAGE.relative_to(ROOT)} is not current: run {sys.argv[0]}\n")
        return 0 if is_current else 1
    if arguments:
        sys.stderr.write(__doc__)
        return 2
    PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
