"""Java clients that speak TLS and trust one authority only."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from tests.interop.agent import AgentError, Outgoing
from tests.interop.agents import JAVA, JAVA_KINDS, AgentPool
from tests.interop.cluster import APACHE, ROQUET, Cluster, Settings

pytestmark = pytest.mark.interop


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def certificate(authority: trustme.CA, tmp_path: Path) -> Settings:
    """Settings of a server that shows a certificate of the authority."""
    issued = authority.issue_cert("localhost", "127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    return {"tls.server.certPath": str(chain), "tls.server.keyPath": str(key)}


def test_clients_that_speak_tls(
    server_side: str,
    agents: AgentPool,
    tmp_path: Path,
    authority: trustme.CA,
    certificate: Settings,
) -> None:
    """The broker takes TLS only; the name server also plain text, which the broker speaks to it."""
    if server_side == APACHE:
        pytest.skip("how Apache's servers speak TLS is not a matter of their settings file")
    trusted = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(trusted))
    secure = (
        "-Dtls.enable=true",
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={trusted}",
    )
    with Cluster(
        ROQUET,
        ROQUET,
        tmp_path / "cluster",
        namesrv_settings={**certificate, "tls.server.mode": "permissive"},
        broker_settings={**certificate, "tls.server.mode": "enforcing"},
    ) as cluster:
        for kind in JAVA_KINDS:
            with agents.spawn(kind, *secure) as agent:
                topic = cluster.create_topic(agent, "Secure", queues=2)
                consumer = agent.push(cluster.namesrv, topic, f"{topic}_group")
                producer = agent.producer(cluster.namesrv)
                messages = [Outgoing(f"{kind} {i}") for i in range(20)]
                producer.send(topic, messages, "sync")
                consumer.wait_for([message.body for message in messages])

        plain = agents.get(JAVA).producer(cluster.namesrv, retries=0)
        with pytest.raises(AgentError, match="still failed"):
            plain.send(topic, [Outgoing("in plain text")], "sync")
        plain.stop()
        other = tmp_path / "other.pem"
        trustme.CA().cert_pem.write_to_path(str(other))
        with (
            agents.spawn(JAVA, *secure[:-1], f"-Dtls.client.trustCertPath={other}") as stranger,
            pytest.raises(AgentError),
        ):
            stranger.route(cluster.namesrv, topic)
