"""Fixtures of the Java oracle: built once, one name server and one client a test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import javabuild
from tests.interop.javabroker import JavaNamesrv, start_namesrv
from tests.interop.javaclient import JavaClient
from tests.interop.oracle import JavaOracle


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
    """Starts Java brokers for this test and asks them through the Java client."""
    return JavaOracle(java_toolkit, java_namesrv, java_client, tmp_path / "java")
