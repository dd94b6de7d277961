"""The broker for tests without an event loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from roquet.errors import ConfigError, RoquetError
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import ResponseCode
from roquet.testing.background import BackgroundBroker, background_broker
from tests.integration.testing.wire_kit import TOPIC, route, send
from tests.patience import PATIENT


def send_blocking(b: BackgroundBroker, body: bytes) -> int:
    async def sent() -> int:
        async with RemotingClient(config=PATIENT) as client:
            return await send(client, b.address, body)

    return asyncio.run(sent())


def stored(b: BackgroundBroker) -> int:
    return b.call(lambda: b.running.store.max_offset_in_queue(TOPIC, 0))


def broker_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "roquet-broker"]


def test_it_serves_and_restarts() -> None:
    with background_broker() as b:
        b.create_topic(TOPIC, queues=2)
        assert send_blocking(b, b"one") == ResponseCode.SUCCESS
        b.restart()
        assert send_blocking(b, b"two") == ResponseCode.SUCCESS
        assert [message.body for message in b.messages(TOPIC)] == [b"one", b"two"]
        b.stop_broker()
        b.start_broker()
        b.stop_namesrv()
        b.start_namesrv()
        assert stored(b) == 2


async def test_it_may_be_used_beside_a_loop() -> None:
    with background_broker() as b:
        b.create_topic(TOPIC)
        async with RemotingClient(config=PATIENT) as client:
            assert await route(client, b.namesrv) is not None
            assert await send(client, b.address, b"one") == ResponseCode.SUCCESS


def test_nothing_is_left() -> None:
    before = broker_threads()
    with background_broker() as a, background_broker() as b:
        assert a.address != b.address
        assert len(broker_threads()) == len(before) + 2
        assert a.folder.exists()
    assert broker_threads() == before
    assert not a.folder.exists()
    with pytest.raises(RoquetError, match="has stopped"):
        b.create_topic(TOPIC)


def test_errors_reach_the_calling_thread() -> None:
    before = broker_threads()
    with pytest.raises(ConfigError, match="flushDiskTyp"), background_broker({"flushDiskTyp": "x"}):
        pass
    with background_broker() as b, pytest.raises(ConfigError):
        b.create_topic("no good")
    assert broker_threads() == before


def test_the_block_may_fail() -> None:
    before = broker_threads()
    with pytest.raises(ZeroDivisionError), background_broker():
        raise ZeroDivisionError
    assert broker_threads() == before


def test_options_and_folder_are_passed_on(tmp_path: Path) -> None:
    with background_broker({"brokerName": "b"}, folder=tmp_path) as b:
        assert (b.name, b.folder) == ("b", tmp_path)
        with background_broker(namesrv=b.namesrv) as other:
            assert other.namesrv == b.namesrv
    assert (tmp_path / "store").is_dir()


def test_faults_are_made_by_the_brokers_thread() -> None:
    with background_broker(proxied=True) as b:
        b.create_topic(TOPIC)
        assert send_blocking(b, b"one") == ResponseCode.SUCCESS
        assert b.call(lambda: b.running.proxy.to_server.passed_bytes) > 0
