"""A client that speaks TLS, and verifies whom it speaks to."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from roquet.client import ClientInstance, ClientOptions
from roquet.errors import ConfigError, ConnectFailed
from roquet.remoting.server import ServerConfig
from roquet.remoting.tls import ClientTlsConfig, ServerTlsConfig, TlsMode
from tests.unit.client.client_kit import fake_server, route_of


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """Files of an authority and of a server that it vouches for."""
    ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = ca.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA)
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    return tmp_path


def server_config(folder: Path) -> ServerConfig:
    tls = ServerTlsConfig(mode=TlsMode.ENFORCING, certificate_file=folder / "server.pem")
    return ServerConfig(tls=tls)


async def test_a_client_that_trusts_the_authority_is_served(authority: Path) -> None:
    async with fake_server(config=server_config(authority)) as server:
        server.routes["T"] = route_of(("a", {0: server.address}))
        tls = ClientTlsConfig(ca_file=authority / "ca.pem")
        options = ClientOptions(namesrv=server.address, tls=tls)
        async with await ClientInstance.open(options) as client:
            assert (await client.routes.route("T")).topic == "T"


@pytest.mark.parametrize("tls", [None, ClientTlsConfig()])
async def test_plain_text_and_unknown_authorities_are_refused(
    authority: Path, tls: ClientTlsConfig | None
) -> None:
    async with fake_server(config=server_config(authority)) as server:
        server.routes["T"] = route_of(("a", {0: server.address}))
        options = ClientOptions(namesrv=server.address, tls=tls)
        async with await ClientInstance.open(options) as client:
            with pytest.raises(ConnectFailed, match="No name server responds"):
                await client.routes.route("T")
        assert server.asked == []


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    tls = ClientTlsConfig(ca_file=tmp_path / "nowhere.pem")
    with pytest.raises(ConfigError, match="authorities"):
        await ClientInstance.open(ClientOptions(namesrv="h:1", tls=tls))
