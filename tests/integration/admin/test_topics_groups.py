"""Topics and groups, against a real name server and real brokers."""

from __future__ import annotations

import pytest

from roquet.admin import Admin
from roquet.errors import BadName, BrokerRefused, ConfigError, NoRoute
from roquet.model.message_queue import MessageQueue
from roquet.remoting.codes import ResponseCode
from roquet.testing.broker import RunningBroker


async def test_a_topic_is_created_changed_and_deleted(
    admin: Admin, server: RunningBroker, second: RunningBroker
) -> None:
    assert await admin.topics.create("T", queues=2) == [server.name, "second"]
    assert "T" in await admin.topics.names()
    assert "T" in await admin.topics.names(cluster=server.cluster)
    assert {each.broker_name for each in (await admin.topics.route("T")).queue_datas} == {
        server.name,
        "second",
    }
    config = (await admin.topics.config("T", broker="second")).answers["second"]
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (2, 2, 6)
    config.write_queue_nums, config.perm = 1, 4
    assert await admin.topics.put(config, broker="second") == ["second"]
    found = (await admin.topics.configs()).complete("Reading")
    assert found["second"]["T"].write_queue_nums == 1
    assert found[server.name]["T"].write_queue_nums == 2
    assert await admin.topics.delete("T") == [server.name, "second"]
    assert "T" not in server.broker.topics.table
    assert "T" not in second.broker.topics.table
    with pytest.raises(NoRoute):
        await admin.topics.route("T")
    with pytest.raises(NoRoute):
        await admin.topics.stats("T")


async def test_a_topic_of_one_broker_is_missing_on_the_other(
    admin: Admin, server: RunningBroker, second: RunningBroker
) -> None:
    await admin.topics.create("T", queues=1, broker=second.address)
    assert "T" not in server.broker.topics.table
    found = await admin.topics.config("T")
    assert list(found.answers) == ["second"]
    refusal = found.failures[server.name]
    assert isinstance(refusal, BrokerRefused)
    assert refusal.response_code == ResponseCode.TOPIC_NOT_EXIST


async def test_an_ordered_topic_is_listed_by_the_name_servers(
    admin: Admin, server: RunningBroker, second: RunningBroker
) -> None:
    await admin.topics.create("T", queues=2, order=True, broker=second.address)
    assert await admin.kv.get("ORDER_TOPIC_CONFIG", "T") == "second:2"
    await admin.topics.create("T", queues=3, order=True, broker=server.name)
    assert await admin.kv.get("ORDER_TOPIC_CONFIG", "T") == f"second:2;{server.name}:3"
    assert server.broker.topics.table["T"].order
    await admin.topics.delete("T")
    assert await admin.kv.get("ORDER_TOPIC_CONFIG", "T") is None


async def test_attributes_are_kept_unless_they_are_named(
    admin: Admin, server: RunningBroker
) -> None:
    await admin.topics.create("T", attributes={"message.type": "FIFO"})
    await admin.topics.create("T", queues=3)
    assert server.broker.topics.table["T"].attributes == {"message.type": "FIFO"}


@pytest.mark.parametrize("name", ["", "a b", "x" * 128])
async def test_bad_names_are_refused_locally(admin: Admin, name: str) -> None:
    with pytest.raises(BadName):
        await admin.topics.create(name)
    with pytest.raises(BadName):
        await admin.topics.delete(name)
    with pytest.raises(BadName):
        await admin.groups.create(name)
    with pytest.raises(BadName):
        await admin.groups.delete(name)


async def test_bad_numbers_are_refused(admin: Admin) -> None:
    with pytest.raises(ConfigError, match="at least one queue"):
        await admin.topics.create("T", queues=0)
    with pytest.raises(ConfigError, match="permission is 8"):
        await admin.topics.create("T", perm=8)
    with pytest.raises(BrokerRefused):
        await admin.topics.create("TBW102")


async def test_queues_of_all_brokers_are_counted(
    admin: Admin, server: RunningBroker, second: RunningBroker
) -> None:
    await admin.topics.create("T", queues=2)
    stats = await admin.topics.stats("T")
    assert list(stats.queues) == [
        MessageQueue("T", name, queue_id)
        for name in (server.name, second.name)
        for queue_id in (0, 1)
    ]
    assert (stats.messages, stats.failures) == (0, {})


async def test_system_topics(admin: Admin, server: RunningBroker) -> None:
    names = await admin.topics.system_names()
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", server.name, server.cluster} <= set(names)


async def test_a_group_is_created_changed_and_deleted(
    admin: Admin, server: RunningBroker, second: RunningBroker
) -> None:
    assert await admin.groups.create("g", retry_max_times=3) == [server.name, "second"]
    assert "g" in await admin.groups.names(broker="second")
    config = (await admin.groups.config("g")).complete("Reading")["second"]
    assert (config.group_name, config.retry_max_times) == ("g", 3)
    config.consume_enable = False
    assert await admin.groups.put(config, broker="second") == ["second"]
    found = (await admin.groups.configs()).complete("Reading")
    assert [found[name]["g"].consume_enable for name in (server.name, "second")] == [True, False]
    await admin.topics.create("%DLQ%g", queues=1)
    await admin.groups.delete("g", broker="second")
    assert "g" in server.broker.groups.table
    assert "g" not in second.broker.groups.table
    assert "%DLQ%g" in server.broker.topics.table
    await admin.groups.delete("g", with_topics=True)
    assert "g" not in server.broker.groups.table
    assert "%DLQ%g" not in server.broker.topics.table


async def test_what_a_group_may_read(admin: Admin, server: RunningBroker) -> None:
    await admin.topics.create("T", queues=1)
    await admin.groups.create("g")
    assert (await admin.groups.readable("g", "T")).answers == {server.name: True}
    assert await admin.groups.set_readable("g", "T", readable=False) == [server.name]
    assert (await admin.groups.readable("g", "T")).answers == {server.name: False}


async def test_topics_list_their_groups_and_groups_their_topics(
    admin: Admin, server: RunningBroker
) -> None:
    await admin.topics.create("T", queues=1)
    assert (await admin.topics.groups("T")).answers == {server.name: []}
    server.broker.offsets.commit("g", "T", 0, 0)
    assert (await admin.topics.groups("T")).answers == {server.name: ["g"]}
    assert (await admin.groups.topics("g")).answers == {server.name: ["T"]}
    assert (await admin.groups.subscription("g", "T")).answers == {server.name: None}
