import asyncio
import os
import ssl
from pathlib import Path

import pytest
import trustme
from msgspec import structs

from roquet.errors import ConfigError, ConnectFailed, SendFailed
from roquet.remoting import listener as listener_module
from roquet.remoting.client import ClientConfig, RemotingClient
from roquet.remoting.endpoint import RemotingLimits
from roquet.remoting.server import ServerConfig
from roquet.remoting.tls import (
    ClientAuth,
    ClientTlsConfig,
    ServerTls,
    ServerTlsConfig,
    TlsMode,
    client_context,
)
from roquet.runtime.files import Files
from tests.patience import PATIENCE_S, PATIENT
from tests.unit.remoting.net_kit import (
    BIG,
    ECHO,
    LOOPBACK,
    SLOW,
    Peer,
    SizeHeader,
    peer_of,
    serving,
    until,
)


class Authority:
    """Signs certificates, and writes them where a test wants them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.ca_file = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(self.ca_file)
        self._stamp_s = 1_000_000_000

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Write a new certificate and key, with a later time than the last."""
        issued = self._authority.issue_cert(*hosts, key_type=trustme.KeyType.ECDSA)
        chain, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(chain)
        issued.private_key_pem.write_to_path(key)
        self._stamp_s += 10
        for path in (chain, key):
            os.utime(path, (self._stamp_s, self._stamp_s))
        return chain, key

    def server(self, mode: TlsMode) -> ServerConfig:
        chain, key = self.issue("server", LOOPBACK, "localhost")
        return ServerConfig(tls=ServerTlsConfig(mode=mode, certificate_file=chain, key_file=key))

    def client(self) -> ClientConfig:
        return structs.replace(PATIENT, tls=ClientTlsConfig(ca_file=self.ca_file))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
async def test_tls_is_spoken(authority: Authority, mode: TlsMode) -> None:
    async with (
        serving(config=authority.server(mode)) as up,
        RemotingClient(config=authority.client()) as client,
    ):
        assert (await client.invoke(up.address, ECHO, body=b"secret")).body == b"secret"
        big = await client.invoke(up.address, BIG, SizeHeader(size=5_000_000))
        assert len(big.body) == 5_000_001
        (connection,) = client.connections
        assert connection._transport is not None
        tls = connection._transport.get_extra_info("ssl_object")
        assert tls.version() in {"TLSv1.2", "TLSv1.3"}


async def test_back_pressure_works_through_tls(authority: Authority) -> None:
    limits = RemotingLimits(write_high_bytes=1 << 16, max_in_flight=3)
    config = ServerConfig(tls=authority.server(TlsMode.ENFORCING).tls, limits=limits)
    async with (
        serving(config=config) as up,
        RemotingClient(config=authority.client()) as client,
    ):
        up.processors.gate.set()
        answers = await asyncio.gather(
            *(client.invoke(up.address, code, body=bytes(20_000)) for code in [ECHO, SLOW] * 200)
        )
        assert {len(each.body) for each in answers} == {20_000}
        assert up.server.statistics.reading_paused > 0


async def test_a_long_response_that_a_tls_peer_does_not_read_counts(authority: Authority) -> None:
    config = ServerConfig(tls=authority.server(TlsMode.ENFORCING).tls)
    size = 8 << 20
    async with serving(config=config) as up:
        context = client_context(ClientTlsConfig(ca_file=authority.ca_file))
        reader, writer = await asyncio.open_connection(
            LOOPBACK, up.port, ssl=context, server_hostname="localhost", limit=1 << 10
        )
        peer = Peer(reader, writer)
        writer.write(peer.frame(BIG, SizeHeader(size=size)))
        await until(lambda: up.server._endpoint.held_bytes > size // 2)
        writer.transport.abort()


async def test_permissive_accepts_both_on_one_port(authority: Authority) -> None:
    async with (
        serving(config=authority.server(TlsMode.PERMISSIVE)) as up,
        RemotingClient(config=authority.client()) as secret,
        RemotingClient(config=PATIENT) as plain,
    ):
        assert (await secret.invoke(up.address, ECHO)).code == 0
        assert (await plain.invoke(up.address, ECHO)).code == 0
        assert up.server.statistics.tls_refused == 0


async def test_enforcing_refuses_plain_text(authority: Authority) -> None:
    async with serving(config=authority.server(TlsMode.ENFORCING)) as up, peer_of(up) as peer:
        peer.writer.write(peer.frame(ECHO))
        assert await peer.closed_by_server()
        assert up.server.statistics.tls_refused == 1
        assert not up.processors.seen


async def test_disabled_refuses_tls(authority: Authority) -> None:
    async with (
        serving(config=authority.server(TlsMode.DISABLED)) as up,
        RemotingClient(config=authority.client()) as secret,
        RemotingClient(config=PATIENT) as plain,
    ):
        with pytest.raises(ConnectFailed):
            await secret.invoke(up.address, ECHO)
        assert (await plain.invoke(up.address, ECHO)).code == 0
        assert up.server.statistics.bad_frames == 1


async def test_without_a_certificate_permissive_is_plain_text(authority: Authority) -> None:
    async with serving() as up, RemotingClient(config=authority.client()) as client:
        assert up.server.tls.mode is TlsMode.DISABLED
        with pytest.raises(ConnectFailed):
            await client.invoke(up.address, ECHO)


async def test_clients_verify_unless_told_not_to(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")
    careless = structs.replace(PATIENT, tls=ClientTlsConfig(verify=False))
    async with serving(config=authority.server(TlsMode.ENFORCING)) as up:
        for config in (stranger.client(), structs.replace(PATIENT, tls=ClientTlsConfig())):
            async with RemotingClient(config=config) as client:
                with pytest.raises(ConnectFailed, match="Cannot connect") as caught:
                    await client.invoke(up.address, ECHO)
                assert "verif" in (caught.value.detail or "").lower()
        await until(lambda: up.server.statistics.tls_refused == 2)
        async with RemotingClient(config=careless) as client:
            assert (await client.invoke(up.address, ECHO)).code == 0


async def test_the_name_of_the_server_is_checked(authority: Authority) -> None:
    chain, key = authority.issue("server", "elsewhere.example")
    tls = ServerTlsConfig(mode=TlsMode.ENFORCING, certificate_file=chain, key_file=key)
    async with (
        serving(config=ServerConfig(tls=tls)) as up,
        RemotingClient(config=authority.client()) as client,
    ):
        with pytest.raises(ConnectFailed):
            await client.invoke(up.address, ECHO)


async def test_certificates_of_clients(authority: Authority) -> None:
    chain, key = authority.issue("server", LOOPBACK)
    tls = ServerTlsConfig(
        mode=TlsMode.ENFORCING,
        certificate_file=chain,
        key_file=key,
        client_auth=ClientAuth.REQUIRE,
        client_ca_file=authority.ca_file,
    )
    own_chain, own_key = authority.issue("client", "client.example")
    known = structs.replace(
        PATIENT,
        tls=ClientTlsConfig(
            ca_file=authority.ca_file, certificate_file=own_chain, key_file=own_key
        ),
    )
    async with serving(config=ServerConfig(tls=tls)) as up:
        async with RemotingClient(config=known) as client:
            assert (await client.invoke(up.address, ECHO)).code == 0
        async with RemotingClient(config=authority.client()) as stranger:
            with pytest.raises((ConnectFailed, SendFailed)):
                await stranger.invoke(up.address, ECHO)
        assert len(up.processors.seen) == 1


def shown_certificate(port: int, ca_file: Path) -> str:
    """The certificate that the server presents."""
    return ssl.get_server_certificate((LOOPBACK, port), ca_certs=str(ca_file), timeout=PATIENCE_S)


async def test_a_changed_certificate_is_used_by_new_connections(authority: Authority) -> None:
    config = authority.server(TlsMode.PERMISSIVE)
    async with (
        serving(config=config) as up,
        RemotingClient(config=authority.client()) as client,
    ):
        first = await asyncio.to_thread(shown_certificate, up.port, authority.ca_file)
        assert (await client.invoke(up.address, ECHO)).code == 0
        assert not up.server.tls.reload_if_changed()
        authority.issue("server", LOOPBACK)
        assert up.server.tls.reload_if_changed()
        second = await asyncio.to_thread(shown_certificate, up.port, authority.ca_file)
        assert first != second
        assert (await client.invoke(up.address, ECHO)).code == 0, "the old connection stays open"


async def test_the_certificate_is_checked_by_a_timer(authority: Authority) -> None:
    chain, key = authority.issue("server", LOOPBACK)
    tls = ServerTlsConfig(certificate_file=chain, key_file=key)
    async with serving(config=ServerConfig(tls=tls, tls_poll_ms=5)) as up:
        before = up.server.tls.context
        authority.issue("server", LOOPBACK)
        await until(lambda: up.server.tls.context is not before)


def test_a_half_replaced_pair_waits_for_its_other_half(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    chain, key = authority.issue("server", LOOPBACK)
    tls = ServerTls(ServerTlsConfig(certificate_file=chain, key_file=key), Files())
    before = tls.context
    new_chain, new_key = authority.issue("next", LOOPBACK)
    new_chain.replace(chain)
    assert not tls.reload_if_changed()
    assert tls.context is before
    assert not tls.reload_if_changed()
    assert caplog.text.count("The old certificate stays in use") == 1
    new_key.replace(key)
    assert tls.reload_if_changed()
    assert tls.context is not before
    key.unlink()
    assert not tls.reload_if_changed()


async def test_a_silent_peer_is_closed_when_idle(authority: Authority) -> None:
    tls = authority.server(TlsMode.PERMISSIVE).tls
    config = ServerConfig(tls=tls, limits=RemotingLimits(idle_timeout_ms=20))
    async with serving(config=config) as up, peer_of(up) as peer:
        assert await peer.closed_by_server()
        assert up.server.statistics.idle_closed == 1
        assert up.server._endpoint.handshakes == set()


async def test_silent_peers_count_as_connections(authority: Authority) -> None:
    tls = authority.server(TlsMode.PERMISSIVE).tls
    config = ServerConfig(tls=tls, limits=RemotingLimits(max_connections=1))
    async with serving(config=config) as up:
        async with peer_of(up), peer_of(up) as second:
            assert await second.closed_by_server()
        await until(lambda: up.server._endpoint.handshakes == set())
        async with peer_of(up) as third:
            assert (await third.ask(ECHO)).code == 0


async def test_a_silent_peer_makes_room(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_SILENCE_NS", 0)
    tls = authority.server(TlsMode.PERMISSIVE).tls
    config = ServerConfig(tls=tls, limits=RemotingLimits(max_connections=1))
    async with serving(config=config) as up, peer_of(up) as first:
        async with peer_of(up) as second:
            assert await second.closed_by_server()
        assert await first.closed_by_server()
        async with peer_of(up) as third:
            assert (await third.ask(ECHO)).code == 0
        assert up.server.statistics.idle_closed == 1


async def test_a_handshake_of_garbage_is_refused(authority: Authority) -> None:
    async with serving(config=authority.server(TlsMode.PERMISSIVE)) as up, peer_of(up) as peer:
        peer.writer.write(b"\x16" + b"\xee" * 1_000)
        await until(lambda: up.server.statistics.tls_refused == 1)
        async with peer_of(up) as good:
            assert (await good.ask(ECHO)).code == 0


def test_enforcing_needs_a_certificate() -> None:
    with pytest.raises(ConfigError, match="there is no certificate"):
        ServerTls(ServerTlsConfig(mode=TlsMode.ENFORCING), Files())


def test_files_that_cannot_be_used(authority: Authority, tmp_path: Path) -> None:
    chain, _ = authority.issue("server", LOOPBACK)
    _, other_key = authority.issue("other", LOOPBACK)
    with pytest.raises(ConfigError, match="certificate or its key cannot be used"):
        ServerTls(ServerTlsConfig(certificate_file=chain, key_file=other_key), Files())
    with pytest.raises(ConfigError, match="certificate or its key cannot be used"):
        ServerTls(ServerTlsConfig(certificate_file=tmp_path / "missing"), Files())
    with pytest.raises(ConfigError, match="authorities cannot be used"):
        client_context(ClientTlsConfig(ca_file=tmp_path / "missing"))
    with pytest.raises(ConfigError, match="no authority is trusted"):
        ServerTls(
            ServerTlsConfig(
                certificate_file=chain,
                key_file=tmp_path / "server.key",
                client_auth=ClientAuth.REQUIRE,
            ),
            Files(),
        )


def test_contexts_are_strict(authority: Authority) -> None:
    chain, key = authority.issue("server", LOOPBACK)
    context = ServerTls(ServerTlsConfig(certificate_file=chain, key_file=key), Files()).context
    assert context is not None
    for each in (context, client_context(ClientTlsConfig())):
        assert each.minimum_version is ssl.TLSVersion.TLSv1_2
        assert each.options & ssl.OP_NO_RENEGOTIATION
    assert client_context(ClientTlsConfig()).check_hostname
