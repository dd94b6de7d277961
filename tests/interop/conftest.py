"""Fixtures of the real clients and servers: built once, started once a test process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop import javabuild
from tests.interop.agents import JAVA, AgentPool
from tests.interop.cluster import APACHE, HASTY_CONFIG, ROQUET, Cluster
from tests.interop.javabroker import JavaNamesrv, start_namesrv
from tests.interop.javaclient import JavaClient
from tests.interop.mqadmin_ours import OurTool
from tests.interop.mqadmin_side import BROKER_NAME, Side
from tests.interop.oracle import JavaOracle

TWIN_SETTINGS = {"brokerName": BROKER_NAME, "traceTopicEnable": "true"}
"""Of the brokers whose administration is compared."""


@pytest.fixture(scope="session")
def java_toolkit() -> javabuild.JavaToolkit:
    """The built Java side; skips with the name of what is missing, or fails where it must not."""
    try:
        return javabuild.build()
    except javabuild.OracleMissingError as error:
        if javabuild.is_required():
            pytest.fail(f"CI has Java and Maven, so the oracle must build: {error}")
        pytest.skip(f"Apache RocketMQ cannot be run here: {error}")


@pytest.fixture(scope="session")
def java_namesrv(
    java_toolkit: javabuild.JavaToolkit, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaNamesrv]:
    with start_namesrv(java_toolkit, tmp_path_factory.mktemp("namesrv")) as namesrv:
        yield namesrv


@pytest.fixture(scope="session")
def java_client(
    java_toolkit: javabuild.JavaToolkit,
    java_namesrv: JavaNamesrv,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[JavaClient]:
    with JavaClient(java_toolkit, tmp_path_factory.mktemp("client"), java_namesrv) as client:
        yield client


@pytest.fixture
def java(
    java_toolkit: javabuild.JavaToolkit,
    java_namesrv: JavaNamesrv,
    java_client: JavaClient,
    tmp_path: Path,
) -> JavaOracle:
    """Starts Java brokers for this test and queries them through the Java client."""
    return JavaOracle(java_toolkit, java_namesrv, java_client, tmp_path / "java")


@pytest.fixture(scope="session")
def server_side() -> str:
    """Whose servers the clients are tried against.

    ROQUET_INTEROP_SERVERS=apache runs every scenario against Apache RocketMQ, which shows that the
    scenario itself is right.
    """
    side = os.environ.get("ROQUET_INTEROP_SERVERS", ROQUET)
    assert side in {APACHE, ROQUET}, side
    return side


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentPool]:
    pool = AgentPool(tmp_path_factory.mktemp("agents"))
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def cluster(server_side: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and a broker that scenarios share; topics keep them apart."""
    with Cluster(server_side, server_side, tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="session")
def hasty_cluster(server_side: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One whose broker checks transactions early and rarely and delays nothing for long.

    It also notifies live clients of resets itself, where the usual broker waits until they pull.
    """
    folder = tmp_path_factory.mktemp("hasty")
    with Cluster(server_side, server_side, folder, broker_settings=HASTY_CONFIG) as started:
        yield started


# All that the Python client does with one side is done by one process, with one cluster.
BOTH_SIDES = [
    pytest.param(side, marks=pytest.mark.xdist_group(f"python-client-{side}"))
    for side in (ROQUET, APACHE)
]


@pytest.fixture(scope="session", params=BOTH_SIDES)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """What the Python client is tried against: each scenario is the same on both sides."""
    folder = tmp_path_factory.mktemp(f"python-client-{request.param}")
    settings = {**HASTY_CONFIG, "traceTopicEnable": "true", "enablePropertyFilter": "true"}
    if request.param == APACHE:
        request.getfixturevalue("java_toolkit")
        settings["recallMessageEnable"] = "true"
    with Cluster(request.param, request.param, folder, broker_settings=settings) as started:
        yield started


@pytest.fixture(scope="session", params=BOTH_SIDES)
def usual_servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """As `servers`, with the usual settings; a test may kill them if it starts them again."""
    if request.param == APACHE:
        request.getfixturevalue("java_toolkit")
    folder = tmp_path_factory.mktemp(f"python-client-usual-{request.param}")
    with Cluster(request.param, request.param, folder) as started:
        yield started


@pytest.fixture(scope="session")
def admin(
    java_toolkit: javabuild.JavaToolkit,
    cluster: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[JavaClient]:
    """Apache RocketMQ's admin tool."""
    with JavaClient(java_toolkit, tmp_path_factory.mktemp("mqadmin"), cluster) as client:
        yield client


@pytest.fixture(scope="session")
def twins(
    java_toolkit: javabuild.JavaToolkit,
    agents: AgentPool,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[Side]]:
    """Servers of Roquet and of Apache RocketMQ with the same settings, and the admin tool."""
    folder = tmp_path_factory.mktemp("twins")
    settings = TWIN_SETTINGS
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(Cluster(kind, kind, folder / kind, broker_settings=settings))
            for kind in (ROQUET, APACHE)
        ]
        tool = stack.enter_context(JavaClient(java_toolkit, folder / "tool", clusters[0]))
        sides = [
            Side(each, tool, agents.get(JAVA), folder / f"{each.broker_side}-files")
            for each in clusters
        ]
        yield sides


@pytest.fixture(scope="session")
def sibling(agents: AgentPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    """Servers of Roquet as those of the twins, with Roquet's own admin tool."""
    folder = tmp_path_factory.mktemp("sibling")
    with Cluster(ROQUET, ROQUET, folder / "servers", broker_settings=TWIN_SETTINGS) as cluster:
        yield Side(cluster, OurTool(folder / "tool"), agents.get(JAVA), folder / "files")
