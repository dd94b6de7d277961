"""What a slave does when name servers list its master, and when they no longer do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from roquet.broker.config import BrokerConfig
from roquet.broker.processor.pull_response import PullResponse
from roquet.broker.service.master_watch import MasterWatch
from roquet.errors import ConnectFailed
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.bodies.route import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand, create_request, create_response
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.ha import ExchangeHAInfoHeader
from roquet.runtime.clock import ManualClock
from roquet.store.config import BrokerRole
from tests.unit.broker.components_kit import components_of
from tests.unit.store import kit

MASTER, HA = "127.0.0.1:1", "127.0.0.1:2"


class Servers:
    """Two name servers and a master.

    Attributes:
        brokers: What each name server lists; one without an entry does not respond.
        ha_address: What the master says.
        is_old: Whether the name servers are of version 4.
    """

    def __init__(self) -> None:
        self.brokers: dict[str, dict[int, str]] = {"ns-1": {}, "ns-2": {}}
        self.ha_address = HA
        self.is_old = False

    async def invoke(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        assert timeout_ms is not None
        request = create_request(code, header, opaque=1)
        if code == RequestCode.EXCHANGE_BROKER_HA_INFO:
            assert address == MASTER
            return create_response(
                request,
                ResponseCode.SUCCESS,
                ExchangeHAInfoHeader(master_ha_address=self.ha_address),
            )
        if address not in self.brokers:
            raise ConnectFailed(f"connect to {address} failed")
        if self.is_old:
            return create_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        group = BrokerMemberGroup(broker_addrs=self.brokers[address])
        body = encode_body(GetBrokerMemberGroupResponseBody(broker_member_group=group))
        return create_response(request, ResponseCode.SUCCESS, body=body)


class Watched:
    """A slave that is polled by hand."""

    def __init__(self, tmp_path: Path, servers: Servers, *, fixed: str = "") -> None:
        store_config = kit.config(broker_role=BrokerRole.SLAVE, ha_master_address=fixed)
        self.store = kit.open_store(tmp_path, config=store_config)
        config = BrokerConfig(broker_id=3, slave_read=True, store_root=str(tmp_path))
        self.parts = components_of(
            config, self.store, ManualClock(kit.NOW_MS), client=cast("RemotingClient", servers)
        )
        self.pulls = PullResponse(config, self.store.config, self.parts.clock)
        self.watch = MasterWatch(self.parts, self.pulls)
        self.parts.registration._namesrvs = dict.fromkeys(("ns-1", "ns-2"))  # type: ignore[assignment]
        self.watch._has_fixed_address = bool(fixed)
        self.parts.master.changed.append(self.watch._changed)

    @property
    def follows(self) -> str:
        return self.parts.ha.ha_master_address


@pytest.fixture(name="servers")
def _servers() -> Servers:
    return Servers()


@pytest.fixture(name="at")
def _at(tmp_path: Path, servers: Servers) -> Iterator[Watched]:
    made = Watched(tmp_path, servers)
    yield made
    made.store.shutdown()


async def test_a_master_is_asked_for_the_address_that_name_servers_do_not_tell(
    at: Watched, servers: Servers
) -> None:
    servers.brokers["ns-2"] = {0: MASTER, 3: "me"}
    await at.watch.poll()
    assert (at.follows, at.pulls.min_broker_id) == (HA, 0)
    at.parts.master.said("ns-1", MASTER, "127.0.0.1:9")
    assert at.follows == "127.0.0.1:9"


async def test_pulls_stay_here_while_the_master_is_away(at: Watched, servers: Servers) -> None:
    woken: list[None] = []
    at.parts.hold.notify_master_online = lambda: woken.append(None)  # type: ignore[method-assign]
    servers.brokers["ns-1"] = {0: MASTER}
    await at.watch.poll()
    servers.brokers["ns-1"] = {3: "me"}
    await at.watch.poll()
    assert (at.pulls.min_broker_id, at.follows, woken) == (3, HA, [])
    servers.brokers["ns-1"] = {0: MASTER}
    await at.watch.poll()
    assert (at.pulls.min_broker_id, at.follows, woken) == (0, HA, [None])


async def test_a_name_server_that_does_not_respond_says_nothing(
    at: Watched, servers: Servers
) -> None:
    servers.brokers["ns-1"] = {0: MASTER}
    await at.watch.poll()
    servers.brokers.clear()
    await at.watch.poll()
    assert at.parts.master.is_listed
    servers.brokers["ns-2"] = {}
    servers.is_old = True
    await at.watch.poll()
    assert at.parts.master.is_listed
    at.parts.master.forget("ns-1")
    assert not at.parts.master.is_listed


async def test_a_master_that_moved_is_followed(at: Watched, servers: Servers) -> None:
    at.parts.master.said("ns-1", "127.0.0.1:7", "127.0.0.1:8")
    servers.brokers = {"ns-1": {0: MASTER}}
    await at.watch.poll()
    assert (at.parts.master.address, at.follows) == (MASTER, HA)


async def test_an_address_in_the_settings_stays(tmp_path: Path, servers: Servers) -> None:
    at = Watched(tmp_path, servers, fixed="127.0.0.1:5")
    servers.brokers["ns-1"] = {0: MASTER}
    await at.watch.poll()
    assert at.follows == "127.0.0.1:5"
    assert at.parts.master.address == MASTER
    at.store.shutdown()
