from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module

import lz4.frame
import pytest
import zstandard

from roquet.client import Compression, compression
from roquet.client.compression import compress, decompress
from roquet.errors import BadBody, ConfigError

BODY = b"paid " * 4_000
KINDS = list(Compression)


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: Compression) -> None:
    packed = compress(BODY, kind)
    assert len(packed) < len(BODY)
    assert decompress(packed, kind.sys_flag) == BODY


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_body_too(kind: Compression) -> None:
    assert decompress(compress(b"", kind), kind.sys_flag) == b""


def test_the_bytes_are_those_that_other_clients_read() -> None:
    assert zlib.decompress(compress(BODY, Compression.ZLIB)) == BODY
    assert lz4.frame.decompress(compress(BODY, Compression.LZ4)) == BODY
    assert zstandard.decompress(compress(BODY, Compression.ZSTD)) == BODY


def test_a_zstd_frame_without_its_length_is_read() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(BODY)
    assert decompress(packed, Compression.ZSTD.sys_flag) == BODY


def test_flags_name_the_kind() -> None:
    assert [kind.sys_flag for kind in KINDS] == [0x301, 0x101, 0x201]


def test_old_clients_name_no_kind_and_mean_zlib() -> None:
    assert decompress(zlib.compress(BODY), 0x1) == BODY


def test_uncompressed_bytes_are_unchanged() -> None:
    assert decompress(b"plain", 0x300) == b"plain"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [0, 1, 5, 20])
def test_half_a_body_is_an_error(kind: Compression, length: int) -> None:
    with pytest.raises(BadBody):
        decompress(compress(BODY, kind)[:length], kind.sys_flag)


@pytest.mark.parametrize("kind", KINDS)
def test_nonsense_is_an_error(kind: Compression) -> None:
    with pytest.raises(BadBody) as caught:
        decompress(b"this was never compressed", kind.sys_flag)
    assert kind.value in (caught.value.detail or "")


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(BadBody, match="cannot be decompressed"):
        decompress(b"x", 0x401)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_refused(kind: Compression) -> None:
    bomb = compress(bytes(8 << 20), kind)
    assert len(bomb) < 100_000
    assert len(decompress(bomb, kind.sys_flag, max_bytes=8 << 20)) == 8 << 20
    with pytest.raises(BadBody) as caught:
        decompress(bomb, kind.sys_flag, max_bytes=(8 << 20) - 1)
    assert "more than 8388607 bytes" in (caught.value.detail or "")


@pytest.mark.parametrize("kind", [Compression.LZ4, Compression.ZSTD])
def test_a_missing_package_is_named(kind: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress(BODY, kind)

    def missing(name: str) -> object:
        if name in {"lz4.frame", "zstandard"}:
            raise ImportError(name)
        return import_module(name)

    monkeypatch.setattr(compression, "import_module", missing)
    actions: tuple[Callable[[], bytes], ...] = (
        lambda: compress(BODY, kind),
        lambda: decompress(packed, kind.sys_flag),
    )
    for action in actions:
        with pytest.raises(ConfigError, match="not installed") as caught:
            action()
        assert "roquet[codecs]" in (caught.value.hint or "")
