from __future__ import annotations

import pytest

from roquet.client import ClientOptions
from roquet.errors import ConfigError
from roquet.remoting.tls import ClientTlsConfig


@pytest.mark.parametrize(
    "namesrv",
    ["a:1;b:2", " a:1 ; b:2;", ["a:1", "b:2"], ("a:1", "b:2", "a:1"), "http:" + "//a:1;b:2"],
)
def test_name_servers_in_every_notation(namesrv: str | list[str]) -> None:
    options = ClientOptions(namesrv=namesrv)
    options.check()
    assert options.namesrv_addresses == ("a:1", "b:2")
    assert options.normalized() == ClientOptions(namesrv=("a:1", "b:2"))


@pytest.mark.parametrize(
    "bad",
    [
        ClientOptions(namesrv=""),
        ClientOptions(namesrv=" ; "),
        ClientOptions(namesrv=[]),
        ClientOptions(namesrv="nowhere"),
        ClientOptions(namesrv="a:1;b:99999"),
        ClientOptions(namesrv="a:1", request_timeout_ms=0),
        ClientOptions(namesrv="a:1", heartbeat_ms=-1),
        ClientOptions(namesrv="a:1", access_key="k"),
        ClientOptions(namesrv="a:1", secret_key="s"),
        ClientOptions(namesrv="a:1", instance_name="a@b"),
    ],
)
def test_invalid_options_are_refused(bad: ClientOptions) -> None:
    with pytest.raises(ConfigError):
        bad.check()


def test_secrets_are_not_shown() -> None:
    options = ClientOptions(
        namesrv="a:1",
        access_key="k",
        secret_key="hush1",
        security_token="hush2",
        tls=ClientTlsConfig(key_password="hush3"),
    )
    assert "hush" not in repr(options)
    assert "access_key='k'" in repr(options)
