"""Brokers register and leave in any order; the tables never contradict each other."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from roquet.namesrv.config import NamesrvConfig
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.namesrv import DeleteTopicFromNamesrvRequestHeader
from tests.campaign import examples
from tests.unit.namesrv.kit import FakeConnection, Server, register_body

NAMES = st.sampled_from(["a", "b"])
CLUSTERS = st.sampled_from(["C1", "C2"])
ADDRESSES = st.sampled_from(["h:1", "h:2", "h:3"])
TOPICS = st.lists(st.sampled_from(["T", "U", "V"]), min_size=1, unique=True)
CONNECTIONS = st.integers(0, 2)


class RouteMachine(RuleBasedStateMachine):
    """Any order of events that brokers, operators and time can make."""

    @initialize(acting=st.booleans(), notify=st.booleans(), deleting=st.booleans())
    def start(self, *, acting: bool, notify: bool, deleting: bool) -> None:
        config = NamesrvConfig(
            support_acting_master=acting,
            notify_min_broker_id_changed=notify,
            delete_topic_with_broker_registration=deleting,
        )
        self.server = Server(config)
        self.connections = [FakeConnection() for _ in range(3)]

    @rule(
        name=NAMES,
        cluster=CLUSTERS,
        broker_id=st.integers(0, 2),
        address=ADDRESSES,
        acting=st.sampled_from([None, True, False]),
        topics=TOPICS,
        versions=st.tuples(st.integers(0, 1), st.integers(0, 1)),
        filters=st.sampled_from([[], ["f:1"]]),
        connection=CONNECTIONS,
    )
    def register(
        self,
        *,
        name: str,
        cluster: str,
        broker_id: int,
        address: str,
        acting: bool | None,
        topics: list[str],
        versions: tuple[int, int],
        filters: list[str],
        connection: int,
    ) -> None:
        counter, state_version = versions
        body = register_body(
            *topics, counter=counter, state_version=state_version, filter_servers=filters
        )
        answer = self.server.register(
            body,
            name=name,
            cluster=cluster,
            broker_id=broker_id,
            address=address,
            acting=acting,
            connection=self.connections[connection],
        )
        assert answer.code == ResponseCode.SUCCESS or len(topics) == 1

    @rule(name=NAMES, address=ADDRESSES)
    def unregister(self, *, name: str, address: str) -> None:
        self.server.routes.unregister(address, name)
        assert address not in self.server.routes.member_group("C1", name).broker_addrs.values()

    @rule(connection=CONNECTIONS)
    def lose(self, *, connection: int) -> None:
        self.server.routes.connection_closed(self.connections[connection])

    @rule(millis=st.sampled_from([1000, 60_000, 120_001]))
    def wait(self, *, millis: int) -> None:
        self.server.clock.advance(millis)
        self.server.routes.scan_not_active()
        if millis > 120_000:
            assert self.server.routes.cluster_info().broker_addr_table == {}
            assert self.server.routes.all_topics().topic_list == []

    @rule(topic=st.sampled_from(["T", "U", "V"]), cluster=st.none() | CLUSTERS)
    def delete_topic(self, *, topic: str, cluster: str | None) -> None:
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        self.server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    @invariant()
    def tables_agree(self) -> None:
        routes = self.server.routes
        brokers = routes._brokers
        here = {
            (name, address)
            for name, data in brokers.items()
            for address in data.broker_addrs.values()
        }
        alive = {(live.broker_name, key.address) for key, live in routes._live.table.items()}
        assert here == alive
        assert routes._live.filter_servers.keys() <= routes._live.table.keys()
        assert {name for names in routes._clusters.values() for name in names} == brokers.keys()
        assert all(routes._clusters.values())
        table = routes._topics
        assert table.is_swept
        assert table.size == sum(map(len, table.queues.values()))
        for topic, queues in table.queues.items():
            assert all(table.has(topic, name) for name in queues)
            assert queues
            assert queues.keys() <= brokers.keys()
        for data in brokers.values():
            ids = list(data.broker_addrs)
            assert ids == sorted(ids)
            assert len(set(data.broker_addrs.values())) == len(ids)

    @invariant()
    def every_route_has_brokers(self) -> None:
        for topic in self.server.routes.all_topics().topic_list:
            route = self.server.route(topic)
            assert route is not None
            assert {queue.broker_name for queue in route.queue_datas} == {
                data.broker_name for data in route.broker_datas
            }
            assert all(data.broker_addrs for data in route.broker_datas)


TestRouteMachine = RouteMachine.TestCase
TestRouteMachine.settings = settings(max_examples=examples(60), stateful_step_count=30)
