"""The initial inputs: frames that Apache RocketMQ 5.4.0 and its clients really sent.

Owns the choice. There are thousands of recorded frames and most are alike, so one is taken of every
code, direction and header codec, of each kind the shortest; long bodies teach a mutator little.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache

from roquet.remoting.codes import RequestCode
from roquet.remoting.frame import SerializeType, encode_frame
from tests.golden.wire_frames import WIRE, GoldenFrame, golden_frames

SEED_BYTES_MAX = 8_192
SEND_CODES = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2})


def frames() -> list[bytes]:
    """Whole frames."""
    return [encode_frame(*each.frame) for each in _samples()]


def headers(serialize_type: SerializeType) -> list[bytes]:
    """Headers in one codec."""
    return [each.frame.header for each in _samples() if each.frame.serialize_type is serialize_type]


def bodies() -> list[tuple[int, bool, bytes]]:
    """Bodies, with the request's code and whether the body is a response's."""
    return [
        (each.request_code, each.is_response, each.frame.body)
        for each in _samples()
        if each.request_code is not None and each.frame.body
    ]


def properties() -> list[bytes]:
    """The property strings of sent messages."""
    found: set[bytes] = set()
    for each in golden_frames():
        fields = each.header.get("extFields")
        if each.request_code in SEND_CODES and isinstance(fields, dict):
            text = fields.get("i", fields.get("properties"))
            if isinstance(text, str):
                found.add(text.encode())
    return _shortest(list(found), len)


def batches() -> list[bytes]:
    """The bodies of batches."""
    found = {
        each.frame.body
        for each in golden_frames()
        if each.request_code == RequestCode.SEND_BATCH_MESSAGE and not each.is_response
    }
    return _shortest([body for body in found if body], len)


def replication() -> list[bytes]:
    """What a slave and its master sent each other, in each direction."""
    lines = (WIRE / "ha.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    raw = [each for each in found if each["server"] == "ha"]
    return [
        b"".join(base64.b64decode(each["raw"]) for each in raw[start:end] if each["dir"] == side)
        for side in ("request-side", "server-side")
        for start, end in ((0, 6), (0, None))
    ]


def _shortest(items: list[bytes], key: Callable[[bytes], int], *, count: int = 40) -> list[bytes]:
    return sorted(items, key=lambda item: (key(item), item))[:count]


@cache
def _samples() -> tuple[GoldenFrame, ...]:
    chosen: dict[tuple[int | None, bool, SerializeType, bool], GoldenFrame] = {}
    for each in golden_frames():
        size = len(each.frame.header) + len(each.frame.body)
        if not each.has_body or size > SEED_BYTES_MAX:
            continue
        kind = (
            each.request_code,
            each.is_response,
            each.frame.serialize_type,
            bool(each.frame.body),
        )
        known = chosen.get(kind)
        if known is None or size < len(known.frame.header) + len(known.frame.body):
            chosen[kind] = each
    return tuple(chosen.values())
