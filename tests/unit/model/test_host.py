from __future__ import annotations

import pytest

from roquet.model.host import LOOPBACK, Host


@pytest.mark.parametrize(
    ("text", "packed"),
    [
        ("127.0.0.1:10911", "7f000001" + "00002a9f"),
        ("255.255.255.255:65535", "ffffffff" + "0000ffff"),
        ("[::1]:80", "00" * 15 + "01" + "00000050"),
        ("[fe80::1]:1", "fe80" + "00" * 13 + "01" + "00000001"),
    ],
)
def test_text_and_packed_form(text: str, packed: str) -> None:
    host = Host.parse(text)
    assert host.pack().hex() == packed
    assert Host.unpack(bytes.fromhex(packed)) == host
    assert Host.unpack(memoryview(bytes.fromhex(packed))) == host
    assert str(host) == text


def test_family() -> None:
    assert not LOOPBACK.is_ipv6
    assert Host.parse("[::1]:1").is_ipv6
    assert str(LOOPBACK) == "127.0.0.1:10911"


@pytest.mark.parametrize("text", ["localhost:80", "1.2.3.4", "1.2.3.4:x", ":80", ""])
def test_bad_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Host.parse(text)
