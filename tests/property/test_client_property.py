"""What holds of any name, any message and any body."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import assume, example, given
from hypothesis import strategies as st

from roquet.client import Compression, Message
from roquet.client.compression import compress, decompress
from roquet.client.message import RESERVED_PROPERTIES
from roquet.client.names import unwrap, wrap
from roquet.errors import BadBody, BadMessage
from roquet.model.properties import decode_properties, encode_properties

NAMES = st.from_regex(r"(%RETRY%|%DLQ%|)[a-zA-Z0-9_|%-]{1,20}", fullmatch=True)
NAMESPACES = st.from_regex(r"[a-zA-Z0-9_-]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)


@given(NAMESPACES, NAMES)
@example("shop", "%RETRY%shop%billing")
@example("a", "a%%DLQ%")
def test_a_wrapped_name_is_wrapped_once_and_unwraps_again(namespace: str, name: str) -> None:
    wrapped = wrap(namespace, name)
    assert wrap(namespace, wrapped) == wrapped
    if wrapped != name:
        assert unwrap(namespace, wrapped) == name


@given(
    properties=st.dictionaries(TEXTS, TEXTS, max_size=4),
    tags=st.none() | TEXTS,
    keys=st.none() | TEXTS | st.lists(TEXTS, max_size=3),
    sharding_key=st.none() | TEXTS,
)
@example(properties={"\ud800": "half"}, tags=None, keys=None, sharding_key=None)
@example(properties={}, tags="a\x02b", keys=None, sharding_key=None)
def test_messages_that_pass_the_check_are_stored_unchanged(
    properties: dict[str, str],
    tags: str | None,
    keys: str | list[str] | None,
    sharding_key: str | None,
) -> None:
    message = Message(
        "T", b"x", tags=tags, keys=keys, properties=properties, sharding_key=sharding_key
    )
    try:
        message.check()
    except BadMessage:
        return
    assume(not RESERVED_PROPERTIES & set(properties))
    wire = message.wire_properties()
    assert decode_properties(encode_properties(wire)) == wire
    assert properties.items() <= wire.items()


@given(st.binary(max_size=300), st.integers(0, 0x7FF))
@example(compress(b"x" * 500, Compression.ZSTD)[:-1], 0x201)
def test_any_bytes_are_a_body_or_refused(data: bytes, sys_flag: int) -> None:
    with suppress(BadBody):
        assert isinstance(decompress(data, sys_flag, max_bytes=1 << 20), bytes)


@given(st.binary(max_size=2_000), st.sampled_from(Compression), st.integers(1, 9))
def test_a_body_round_trips(body: bytes, kind: Compression, level: int) -> None:
    assert decompress(compress(body, kind, level=level), kind.sys_flag) == body
