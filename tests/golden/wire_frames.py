"""The frames of data/wire, with each response beside its request."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from roquet.remoting.codes import RequestCode
from roquet.remoting.frame import Frame, SerializeType

WIRE = Path(__file__).parent / "data" / "wire"
RUNS = ("json", "binary", "ext", "ha")
KNOWN_CODES = {int(code): code for code in RequestCode}


@dataclass(frozen=True, slots=True)
class GoldenFrame:
    """One frame of a run.

    Attributes:
        place: File and line, for messages.
        frame: Its parts, as they were on the wire.
        has_body: Whether the body was recorded; very long ones were not.
        header: The header as the recorder read it.
        request_code: The code of a request, or of the request of a response.
        client_version: The version that the request has.
    """

    place: str
    frame: Frame
    has_body: bool
    header: dict[str, object]
    is_response: bool
    request_code: int | None
    client_version: int

    @property
    def known_code(self) -> RequestCode | None:
        return KNOWN_CODES.get(self.request_code or 0)


def read_run(run: str) -> Iterator[GoldenFrame]:
    requests: dict[tuple[str, int, bool, int], tuple[int, int]] = {}
    for number, line in enumerate((WIRE / f"{run}.jsonl").read_text("utf-8").splitlines(), 1):
        row = json.loads(line)
        if row["server"] == "ha":
            continue
        header = row["header"]
        is_response = bool(header["flag"] & 1)
        from_client = row["dir"] == "request-side"
        asked_by_client = from_client != is_response
        key = (row["server"], row["conn"], asked_by_client, header["opaque"])
        if not is_response:
            requests[key] = (header["code"], header["version"])
        code, version = requests.get(key, (None, 0))
        yield GoldenFrame(
            place=f"{run}.jsonl:{number}",
            frame=Frame(
                SerializeType[row["codec"]],
                base64.b64decode(row["head"]),
                base64.b64decode(row.get("body", "")),
            ),
            has_body="body_length" not in row,
            header=header,
            is_response=is_response,
            request_code=code,
            client_version=version,
        )


@cache
def golden_frames() -> tuple[GoldenFrame, ...]:
    """All frames of the remoting protocol; the replication connection has another."""
    return tuple(frame for run in RUNS for frame in read_run(run))


@cache
def protocol() -> dict[str, dict[str, object]]:
    """What the classes of Apache RocketMQ 5.4.0 say about themselves."""
    text = (WIRE / "protocol-5.4.0.json").read_text("utf-8")
    tables: dict[str, dict[str, object]] = json.loads(text)
    return tables
