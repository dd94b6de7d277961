"""The page ``docs/reference/protocol.md``, made from the tables of this package.

Run as a program it prints the page, which goes into that file after a change of the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from roquet.remoting.bodies.table import REQUEST_BODIES, RESPONSE_BODIES
from roquet.remoting.codes import (
    Handler,
    LanguageCode,
    RequestCode,
    ResponseCode,
    version_ordinal,
)
from roquet.remoting.frame import MAX_FRAME_BYTES, MAX_HEADER_BYTES
from roquet.remoting.headers.base import Header, header_fields
from roquet.remoting.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS
from roquet.remoting.json_header import MAX_EXT_FIELDS

__all__ = ["protocol_page"]

_INTRODUCTION = f"""\
# Protocol

The numbers and names of the remoting protocol, which are those of Apache RocketMQ 5.4.0. This page
is made by `python -m roquet.remoting.protocol_page` from the tables in `src/roquet/remoting/`;
change those, not the page.

## Frame

Integers are big-endian. A frame has at most {MAX_FRAME_BYTES:,} bytes, its header at most
{MAX_HEADER_BYTES:,} of them, with at most {MAX_EXT_FIELDS:,} ext fields. A peer that breaks these
rules is disconnected.

| bytes | field |
|---|---|
| 4 | length of all that follows |
| 1 | serialize type of the header: 0 JSON, 1 ROCKETMQ (binary) |
| 3 | length of the header |
| as said | header |
| the rest | body |

A header has a `code`, the sender's `language` and `version`, an `opaque` that pairs a response with
its request, a `flag` (1 response, 2 one-way), a `remark` for people, and `extFields`: names and
texts that belong to the code. The binary form has 16 bits for the code, so POP works only with
JSON headers.
"""

_GATES = {
    "V3_0_11": "a broker registers with a body that has more than topics",
    "V3_4_9": "send-back and retry keep to `maxReconsumeTimes`",
    "V4_1_0_SNAPSHOT": "a broker of this version takes SQL92 in a pull request",
    "V4_5_2": "what the Go client says it is",
    "V4_9_4": "routes come as standard JSON",
    "V5_0_0": "a compressed register body has static topics",
    "V5_3_1": "later clients understand GO_AWAY",
    "V5_4_0": "what Roquet says it is",
}


def protocol_page() -> str:
    """The whole page."""
    parts: list[str] = [_INTRODUCTION, _requests(), _headers(), _responses(), _names()]
    return "\n".join(parts)


def _table(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    def lines() -> Iterator[str]:
        heads = list(titles)
        yield f"| {' | '.join(heads)} |"
        yield "|" + "---|" * len(heads)
        for row in rows:
            yield f"| {' | '.join(map(str, row))} |"

    return "\n".join(lines()) + "\n"


def _requests() -> str:
    rows = [
        (
            int(code),
            f"`{code.name}`",
            code.purpose,
            code.handlers.label,
            _pair(code, REQUEST_HEADERS, REQUEST_BODIES),
            _pair(code, RESPONSE_HEADERS, RESPONSE_BODIES),
        )
        for code in sorted(RequestCode)
    ]
    nobody = sum(code.handlers is Handler.NONE for code in RequestCode)
    return (
        f"## Request codes\n\n{len(rows)} codes, {nobody} of which nobody handles; these are"
        " answered with REQUEST_CODE_NOT_SUPPORTED.\nHeaders and JSON bodies are named where they"
        " have a type of their own.\n\n"
        + _table(["code", "name", "purpose", "handled by", "request", "response"], rows)
    )


def _pair(
    code: RequestCode,
    headers: Mapping[RequestCode, type[Header]],
    bodies: Mapping[RequestCode, type[Struct]],
) -> str:
    types: list[type[Struct]] = [table[code] for table in (headers, bodies) if code in table]
    return "<br>".join(f"`{each.__name__}`" for each in types)


def _headers() -> str:
    used = (*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values())
    types = {each.__name__: each for each in used}
    rows = []
    for name in sorted(types):
        fields = (
            f"**{field.wire_name}** {field.type_name}"
            if field.required
            else f"{field.wire_name} {field.type_name}"
            for field in header_fields(types[name])
        )
        rows.append((f"`{name}`", ", ".join(fields) or "nothing"))
    return (
        "## Headers\n\nFields in the order in which they are written; those in bold must be there."
        " Any request may carry\nmore, such as the `AccessKey` and `Signature` of a signed one.\n\n"
        + _table(["header", "ext fields"], rows)
    )


def _responses() -> str:
    rows = [(int(code), f"`{code.name}`") for code in sorted(ResponseCode)]
    return "## Response codes\n\n" + _table(["code", "name"], rows)


def _names() -> str:
    languages = [(int(code), f"`{code.name}`") for code in LanguageCode]
    versions = [(version_ordinal(name), f"`{name}`", what) for name, what in _GATES.items()]
    return (
        "## Languages\n\n"
        + _table(["code", "name"], languages)
        + "\n## Versions\n\nA version travels as an ordinal; these are looked at.\n\n"
        + _table(["ordinal", "name", "what it is for"], versions)
    )


if __name__ == "__main__":
    sys.stdout.write(protocol_page())
