"""Clusters, values and settings, against a real name server and real brokers."""

from __future__ import annotations

import pytest

from roquet.admin import Admin, BrokerInfo
from roquet.client import ClientOptions
from roquet.errors import (
    BadName,
    BrokerRefused,
    BrokersFailed,
    ClientClosed,
    ConfigError,
    ConnectFailed,
    NotFound,
    PermissionRefused,
)
from roquet.testing.broker import RunningBroker, broker
from tests.patience import TIMEOUT_MS


async def test_both_brokers_are_listed(
    admin: Admin, server: RunningBroker, second: RunningBroker
) -> None:
    assert await admin.clusters.names() == {server.cluster: [server.name, "second"]}
    found = await admin.clusters.brokers()
    assert [(each.name, each.broker_id, each.address) for each in found] == [
        (server.name, 0, server.address),
        ("second", 0, second.address),
    ]
    members = await admin.clusters.members(server.cluster, "second")
    assert members.broker_addrs == {0: second.address}


async def test_runtime_info_of_all_brokers_or_one(
    admin: Admin, server: RunningBroker, second: RunningBroker
) -> None:
    everywhere = await admin.clusters.runtime()
    assert (sorted(everywhere.answers), everywhere.failures) == ([server.name, "second"], {})
    assert "brokerVersionDesc" in everywhere.answers["second"]
    assert list((await admin.clusters.runtime(broker="second")).answers) == ["second"]
    by_address = await admin.clusters.runtime(broker=second.address)
    assert list(by_address.answers) == [second.address]
    assert list((await admin.clusters.runtime(cluster=server.cluster)).answers) == [
        server.name,
        "second",
    ]


async def test_an_unreachable_broker_is_named(
    admin: Admin, server: RunningBroker, second: RunningBroker
) -> None:
    await admin.topics.create("T", queues=1)
    brokers = await admin.clusters.brokers()
    # Still registered, as after a crash: the name server has not noticed yet.
    admin._calls.brokers = lambda: _later(brokers)  # type: ignore[method-assign]
    await second.stop_broker()
    found = await admin.clusters.runtime()
    assert list(found.answers) == [server.name]
    assert isinstance(found.failures["second"], ConnectFailed)
    with pytest.raises(BrokersFailed) as failed:
        await admin.clusters.clean_expired_queues()
    assert failed.value.succeeded == (server.name,)
    assert list(failed.value.failures) == ["second"]
    assert "second: " in (failed.value.detail or "")
    with pytest.raises(ConnectFailed):
        await admin.settings.set_brokers({"brokerPermission": "6"}, broker="second")


async def _later(found: list[BrokerInfo]) -> list[BrokerInfo]:
    return found


async def test_unknown_names_are_reported_with_the_known_ones(
    admin: Admin, server: RunningBroker
) -> None:
    with pytest.raises(NotFound, match="no broker nobody") as wrong:
        await admin.clusters.runtime(broker="nobody")
    assert server.name in (wrong.value.detail or "")
    with pytest.raises(NotFound, match="no cluster nowhere"):
        await admin.topics.create("T", cluster="nowhere")
    with pytest.raises(ConfigError, match="no address"):
        await admin.clusters.runtime(broker="host:port")


async def test_write_permission_is_removed_and_restored(
    admin: Admin, server: RunningBroker
) -> None:
    await server.create_topic("T", queues=2)
    assert await admin.clusters.forbid_writes(server.name) > 0
    assert [each.perm for each in (await admin.topics.route("T")).queue_datas] == [4]
    assert await admin.clusters.allow_writes(server.name) > 0
    assert [each.perm for each in (await admin.topics.route("T")).queue_datas] == [6]


async def test_write_permission_of_an_unknown_broker(admin: Admin) -> None:
    for change in (admin.clusters.forbid_writes, admin.clusters.allow_writes):
        with pytest.raises(NotFound, match="no broker nobody"):
            await change("nobody")


async def test_a_cluster_without_brokers(admin: Admin, server: RunningBroker) -> None:
    await server.stop_broker()
    assert await admin.clusters.brokers() == []
    assert await admin.clusters.names() == {}
    with pytest.raises(NotFound, match="No broker is registered"):
        await admin.topics.create("T")
    with pytest.raises(NotFound, match="No broker is registered"):
        await admin.groups.names()


async def test_every_name_server_gets_the_change(server: RunningBroker) -> None:
    async with broker() as other:
        both = [server.namesrv, other.namesrv]
        async with Admin(both) as admin, Admin(other.namesrv) as there:
            await admin.kv.set("colours", "sky", "blue")
            assert await there.kv.get("colours", "sky") == "blue"
            assert sorted((await admin.settings.name_servers()).answers) == sorted(both)
            await other.stop_namesrv()
            with pytest.raises(BrokersFailed) as failed:
                await admin.kv.set("colours", "sky", "red")
            assert failed.value.succeeded == (server.namesrv,)
            assert list(failed.value.failures) == [other.namesrv]
            assert await admin.kv.get("colours", "sky") == "red"


async def test_replication_and_epochs(admin: Admin, server: RunningBroker) -> None:
    status = (await admin.clusters.replication()).answers[server.name]
    assert (status.master, status.in_sync_slave_nums) == (True, 0)
    refusal = (await admin.clusters.epochs()).failures[server.name]
    assert isinstance(refusal, BrokerRefused)


async def test_housekeeping_names_the_brokers_that_did_it(
    admin: Admin, server: RunningBroker
) -> None:
    assert await admin.clusters.clean_unused_topics() == [server.name]
    assert await admin.clusters.clean_expired_queues() == [server.name]
    assert await admin.clusters.delete_expired_log(broker=server.name) == [server.name]
    assert await admin.clusters.delete_expired_log(archived_offset=0) == [server.name]


async def test_values_are_set_shown_and_deleted(admin: Admin) -> None:
    assert await admin.kv.get("colours", "sky") is None
    assert await admin.kv.items("colours") == {}
    await admin.kv.set("colours", "sky", "blue")
    await admin.kv.set("colours", "sea", "green")
    assert await admin.kv.items("colours") == {"sky": "blue", "sea": "green"}
    await admin.kv.delete("colours", "sea")
    assert await admin.kv.get("colours", "sky") == "blue"
    assert await admin.kv.get("colours", "sea") is None
    with pytest.raises(BadName, match="key is blank"):
        await admin.kv.set("colours", " ", "grey")


async def test_order_lists_grow_by_broker(admin: Admin) -> None:
    await admin.kv.set_order("T", {"a": 4})
    await admin.kv.set_order("T", {"b": 8})
    assert await admin.kv.get("ORDER_TOPIC_CONFIG", "T") == "a:4;b:8"


async def test_settings_of_brokers(admin: Admin, server: RunningBroker) -> None:
    found = await admin.settings.brokers()
    assert found.answers[server.name]["brokerName"] == server.name
    assert await admin.settings.set_brokers({"brokerPermission": "4"}) == [server.name]
    assert server.broker.config.broker_permission == 4
    with pytest.raises(PermissionRefused):
        await admin.settings.set_brokers({"storePathRootDir": "elsewhere"})
    for bad in ({}, {"two words": "1"}, {"a": "1\nb=2"}, {"a=b": "1"}):
        with pytest.raises(ConfigError):
            await admin.settings.set_brokers(bad)


async def test_settings_of_name_servers(admin: Admin, server: RunningBroker) -> None:
    found = await admin.settings.name_servers()
    assert found.answers[server.namesrv]["listenPort"] == server.namesrv.rpartition(":")[2]
    with pytest.raises(PermissionRefused):
        await admin.settings.set_name_servers({"kvConfigPath": "elsewhere"})


async def test_a_closed_admin_raises(server: RunningBroker) -> None:
    admin = Admin(ClientOptions(namesrv=server.namesrv, request_timeout_ms=TIMEOUT_MS))
    with pytest.raises(ClientClosed, match="not started"):
        await admin.clusters.names()
    async with admin:
        await admin.start()
        assert await admin.clusters.names()
    await admin.close()
    with pytest.raises(ClientClosed):
        await admin.clusters.names()


async def test_bad_settings_are_refused_before_any_request(server: RunningBroker) -> None:
    with pytest.raises(ConfigError):
        Admin("")
    with pytest.raises(ConfigError):
        Admin(ClientOptions(namesrv=server.namesrv, request_timeout_ms=0))


async def test_no_name_server(server: RunningBroker) -> None:
    async with Admin(server.namesrv) as admin:
        await server.stop_namesrv()
        with pytest.raises(ConnectFailed, match="No name server responds"):
            await admin.clusters.names()
        with pytest.raises(ConnectFailed):
            await admin.kv.set("a", "b", "c")
