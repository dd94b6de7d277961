"""Which brokers are here, which topics they have, and how they come and go.

Owns upstream's tables:

============================== ==============================================================
``_queues``                    topicQueueTable: by topic and broker name, the queues
``_brokers``                   brokerAddrTable: by broker name, the addresses by broker id
``_clusters``                  clusterAddrTable: by cluster, the broker names
``_live``                      brokerLiveTable: by cluster and address, when last heard of
``_filter_servers``            filterServerTable: by cluster and address
``_mappings``                  topicQueueMappingInfoTable: by topic and broker name
============================== ==============================================================

Invariants:

* No topic, broker name or cluster stands in its table without an entry.
* An address stands in the table of brokers if and only if it counts as alive under that name.
* A registration that is refused changes nothing; one that a later election overtook removes its
  address.
* The addresses of a broker name are in the order of their ids, as upstream writes them.
* Silence is measured with a clock that only goes forward, so setting the machine's clock makes no
  broker disappear.

Everything here is values, which are replaced and never changed in place; a connection is only told
from others. What has to be sent or closed is returned to the caller. The tables belong to one
thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from roquet.model.data_version import DataVersion
from roquet.model.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.registration import (
    BrokerKey,
    BrokerRegistration,
    MinBrokerIdChange,
    RegisterBrokerResult,
    SilentBroker,
    check_names,
    is_name,
)
from roquet.namesrv.route_query import with_acting_masters
from roquet.remoting.bodies.route import (
    MASTER_ID,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from roquet.remoting.bodies.topic import TopicList
from roquet.remoting.headers.ha import NotifyMinBrokerIdChangeRequestHeader
from roquet.runtime.clock import Clock

__all__ = ["RouteInfoManager"]

log = logging.getLogger(__name__)

BROKER_CHANNEL_EXPIRED_MS = 120_000
"""How long a broker that names no time of its own may be silent."""

UNIT_FLAG = 1
UNIT_SUB_FLAG = 2


class _LiveBroker(Struct, kw_only=True):
    broker_name: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: object
    ha_server_address: str


class RouteInfoManager:
    """The tables.

    Args:
        config: Gives the settings in force.
        clock: Time.
    """

    def __init__(self, config: Callable[[], NamesrvConfig], clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._live: dict[BrokerKey, _LiveBroker] = {}
        self._filter_servers: dict[BrokerKey, list[str]] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}

    # Brokers come

    def register(self, broker: BrokerRegistration) -> RegisterBrokerResult | None:
        """Take in a broker and its topics.

        Returns:
            What it learns; ``None`` if it names a single topic before it ever registered all.

        Raises:
            ProtocolError: A name or an address cannot be one.
        """
        check_names(broker)
        known = self._brokers.get(broker.broker_name)
        before = {} if known is None else known.broker_addrs
        # An address has one id: a slave that becomes master gives up its old one.
        addresses = {
            broker_id: address
            for broker_id, address in before.items()
            if address != broker.address or broker_id == broker.broker_id
        }
        holder = addresses.get(broker.broker_id)
        if self._is_outdated(broker, holder):
            changes = [
                self._leave_other_name(broker),
                self.unregister(broker.address, broker.broker_name),
            ]
            return RegisterBrokerResult(changes=_news(changes))
        is_new = holder is None
        if is_new and len(broker.topics.topic_config_table) == 1:
            return None
        changes = [self._leave_other_name(broker)]
        if holder is not None and holder != broker.address:
            self._forget_address(holder, broker.broker_name)
        addresses[broker.broker_id] = broker.address
        self._clusters.setdefault(broker.cluster_name, {})[broker.broker_name] = None
        self._brokers[broker.broker_name] = data = BrokerData(
            broker_addrs=dict(sorted(addresses.items())),
            broker_name=broker.broker_name,
            cluster=broker.cluster_name if known is None else known.cluster,
            enable_acting_master=bool(broker.enable_acting_master),
            zone_name=broker.zone_name,
        )
        is_prime_slave = (
            broker.enable_acting_master is not None
            and broker.broker_id != MASTER_ID
            and broker.broker_id == min(addresses)
        )
        if broker.broker_id == MASTER_ID or is_prime_slave:
            is_acting = is_prime_slave and data.enable_acting_master
            self._take_topics(broker, is_new=is_new, is_acting_master=is_acting)
        self._note_alive(broker)
        if broker.broker_id < min(before, default=MASTER_ID):
            ha_address = broker.ha_server_address
            changes.append(
                self._min_id_change(data.broker_addrs, offline_address=None, ha_address=ha_address)
            )
        return self._register_result(broker, data, _news(changes))

    def _is_outdated(self, broker: BrokerRegistration, old_address: str | None) -> bool:
        """Whether another address has the same id by a later election."""
        if old_address is None or old_address == broker.address:
            return False
        rival = self._live.get(BrokerKey(broker.cluster_name, old_address))
        if rival is None:
            return False
        state_version = broker.topics.data_version.state_version
        if rival.data_version.state_version <= state_version:
            return False
        log.warning(
            "Broker %s id %s at %s is ignored: %s has the id by a later election (%s > %s).",
            broker.broker_name,
            broker.broker_id,
            broker.address,
            old_address,
            rival.data_version.state_version,
            state_version,
        )
        return True

    def _leave_other_name(self, broker: BrokerRegistration) -> MinBrokerIdChange | None:
        """Drop an address from the name that it had before, where it would stay forever."""
        before = self._live.get(broker.key)
        if before is None or before.broker_name == broker.broker_name:
            return None
        return self.unregister(broker.address, before.broker_name)

    def _take_topics(
        self, broker: BrokerRegistration, *, is_new: bool, is_acting_master: bool
    ) -> None:
        topics = broker.topics
        name = broker.broker_name
        changed = is_new or self.is_data_version_changed(
            broker.cluster_name, broker.address, topics.data_version
        )
        mappings = topics.topic_queue_mapping_info_map
        if self._config().delete_topic_with_broker_registration and not mappings:
            kept = topics.topic_config_table
            gone = [topic for topic, of in self._queues.items() if name in of and topic not in kept]
            for topic in gone:
                self._remove_queues(topic, [name])
        for config in topics.topic_config_table.values():
            new_topic = config.topic_name
            if new_topic is None or not is_name(new_topic):
                log.warning("Broker %s has a topic with a bad name: %.300r", name, new_topic)
            elif changed or name not in self._queues.get(new_topic, {}):
                queues = _queue_data(name, config, is_acting_master=is_acting_master)
                self._queues.setdefault(new_topic, {})[name] = queues
        if changed:
            for topic, mapping in mappings.items():
                self._mappings.setdefault(topic, {})[name] = mapping

    def _note_alive(self, broker: BrokerRegistration) -> None:
        if broker.key not in self._live:
            log.info("Broker %s registered, id %s.", broker.key, broker.broker_id)
        timeout_ms = broker.heartbeat_timeout_ms
        self._live[broker.key] = _LiveBroker(
            broker_name=broker.broker_name,
            last_update_ms=self._now_ms(),
            timeout_ms=BROKER_CHANNEL_EXPIRED_MS if timeout_ms is None else timeout_ms,
            data_version=broker.topics.data_version,
            connection=broker.connection,
            ha_server_address=broker.ha_server_address,
        )
        if broker.filter_servers:
            self._filter_servers[broker.key] = broker.filter_servers
        elif broker.filter_servers is not None:
            self._filter_servers.pop(broker.key, None)

    def _register_result(
        self,
        broker: BrokerRegistration,
        data: BrokerData,
        news: tuple[MinBrokerIdChange, ...],
    ) -> RegisterBrokerResult:
        if broker.broker_id != MASTER_ID:
            address = data.broker_addrs.get(MASTER_ID, "")
            master = self._live.get(BrokerKey(broker.cluster_name, address))
            if master is not None:
                return RegisterBrokerResult(master.ha_server_address, address, news)
        return RegisterBrokerResult(changes=news)

    # Brokers stay

    def heartbeat(self, cluster_name: str, address: str) -> None:
        """A broker was heard of; one that is not registered must register first."""
        live = self._live.get(BrokerKey(cluster_name, address))
        if live is not None:
            live.last_update_ms = self._now_ms()

    def data_version(self, cluster_name: str, address: str) -> DataVersion | None:
        """The version of the topics that a broker registered."""
        live = self._live.get(BrokerKey(cluster_name, address))
        return None if live is None else live.data_version

    def is_data_version_changed(
        self, cluster_name: str, address: str, data_version: DataVersion | None
    ) -> bool:
        """Whether a broker has to register; any other version counts, a lower one too."""
        known = self.data_version(cluster_name, address)
        return known is None or known != data_version

    # Brokers go

    def unregister(self, address: str, broker_name: str) -> MinBrokerIdChange | None:
        """Drop a broker, and what only it had."""
        self._forget_address(address, broker_name)
        data = self._brokers.get(broker_name)
        if data is None:
            return None
        before = data.broker_addrs
        left = {broker_id: other for broker_id, other in before.items() if other != address}
        log.info("Broker %s of name %s left; ids %s remain.", address, broker_name, list(left))
        if not left:
            self._forget_name(broker_name)
            return None
        self._brokers[broker_name] = msgspec.structs.replace(data, broker_addrs=left)
        if data.enable_acting_master:
            if min(left) > MASTER_ID:
                self._set_perm(broker_name, _without_write)
            if min(left) != min(before):
                return self._min_id_change(left, offline_address=address, ha_address=None)
        return None

    def connection_closed(self, connection: object) -> list[MinBrokerIdChange]:
        """Drop the brokers that last registered by a connection which is gone."""
        lost = [key for key, live in self._live.items() if live.connection is connection]
        return list(_news([self._drop(key) for key in lost]))

    def scan_not_active(self) -> list[SilentBroker]:
        """Drop the brokers that were silent for too long."""
        now_ms = self._now_ms()
        silent = [
            (key, live)
            for key, live in self._live.items()
            if live.last_update_ms + live.timeout_ms < now_ms
        ]
        for key, live in silent:
            log.warning("Broker %s was silent for more than %s ms.", key, live.timeout_ms)
        return [SilentBroker(key.address, live.connection, self._drop(key)) for key, live in silent]

    def _drop(self, key: BrokerKey) -> MinBrokerIdChange | None:
        live = self._live.get(key)
        if live is None:
            return None
        return self.unregister(key.address, live.broker_name)

    def _forget_address(self, address: str, broker_name: str) -> None:
        """An address counts as alive under a name no longer, in whichever cluster.

        If it did, its broker would be told that its topics are known and not register again.
        """
        for key, live in list(self._live.items()):
            if key.address == address and live.broker_name == broker_name:
                del self._live[key]
                self._filter_servers.pop(key, None)

    def _forget_name(self, broker_name: str) -> None:
        del self._brokers[broker_name]
        for cluster, names in list(self._clusters.items()):
            names.pop(broker_name, None)
            if not names:
                del self._clusters[cluster]
        for topic in list(self._queues):
            self._remove_queues(topic, [broker_name])
        for topic, mappings in list(self._mappings.items()):
            mappings.pop(broker_name, None)
            if not mappings:
                del self._mappings[topic]

    def _min_id_change(
        self, addresses: dict[int, str], *, offline_address: str | None, ha_address: str | None
    ) -> MinBrokerIdChange | None:
        if not self._config().notify_min_broker_id_changed:
            return None
        min_id = min(addresses)
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=min_id,
            min_broker_address=addresses[min_id],
            offline_broker_address=offline_address,
            ha_broker_address=ha_address,
        )
        tell_all = offline_address is not None or len(addresses) == 1
        told = [address for each, address in addresses.items() if tell_all or each != min_id]
        return MinBrokerIdChange(header, told)

    # Topics

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Take in the queues of one topic, if all their brokers are here."""
        by_broker = {queue.broker_name: queue for queue in queues if queue.broker_name}
        if not is_name(topic) or not by_broker.keys() <= self._brokers.keys():
            log.warning("Topic %.300r with an unknown broker or a bad name is ignored.", topic)
        elif by_broker:
            self._queues.setdefault(topic, {}).update(by_broker)

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Drop the route of a topic, in one cluster or in all."""
        if cluster_name:
            self._remove_queues(topic, self._clusters.get(cluster_name, ()))
        else:
            self._queues.pop(topic, None)

    def wipe_write_perm(self, broker_name: str) -> int:
        """No more sends to a broker; how many topics it has."""
        return self._set_perm(broker_name, _without_write)

    def add_write_perm(self, broker_name: str) -> int:
        """Reads and sends again; how many topics it has."""
        return self._set_perm(broker_name, lambda _perm: PERM_READ | PERM_WRITE)

    def _set_perm(self, broker_name: str, perm_of: Callable[[int], int]) -> int:
        count = 0
        for queues in self._queues.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queues[broker_name] = msgspec.structs.replace(queue, perm=perm_of(queue.perm))
                count += 1
        return count

    def _remove_queues(self, topic: str, broker_names: Iterable[str]) -> None:
        queues = self._queues.get(topic)
        if queues is not None:
            for name in broker_names:
                queues.pop(name, None)
            if not queues:
                del self._queues[topic]

    # Questions

    def route(self, topic: str) -> TopicRouteData | None:
        """Where a topic is; ``None`` if no broker has it."""
        queues = self._queues.get(topic, {})
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        route = TopicRouteData(
            broker_datas=brokers,
            filter_server_table=self._filter_servers_of(brokers),
            queue_datas=list(queues.values()),
            topic_queue_mapping_by_broker=self._mappings.get(topic),
        )
        if self._config().support_acting_master:
            return with_acting_masters(topic, route)
        return route

    def _filter_servers_of(self, brokers: Iterable[BrokerData]) -> dict[str, list[str]]:
        if not self._filter_servers:
            return {}
        return {
            address: servers
            for data in brokers
            for address in data.broker_addrs.values()
            if (servers := self._filter_servers.get(BrokerKey(data.cluster or "", address)))
        }

    def cluster_info(self) -> ClusterInfo:
        """Clusters and their brokers."""
        return ClusterInfo(
            broker_addr_table=dict(self._brokers),
            cluster_addr_table={cluster: list(names) for cluster, names in self._clusters.items()},
        )

    def member_group(self, cluster_name: str, broker_name: str) -> BrokerMemberGroup:
        """The brokers of a name, which may be none."""
        data = self._brokers.get(broker_name)
        return BrokerMemberGroup(
            broker_addrs={} if data is None else data.broker_addrs,
            broker_name=broker_name,
            cluster=cluster_name,
        )

    def all_topics(self) -> TopicList:
        """All topics."""
        return TopicList(topic_list=list(self._queues))

    def topics_of_cluster(self, cluster_name: str) -> TopicList:
        """The topics that a cluster's brokers have."""
        names = self._clusters.get(cluster_name, {}).keys()
        return TopicList(
            topic_list=[topic for topic, of in self._queues.items() if not names.isdisjoint(of)]
        )

    def system_topics(self) -> TopicList:
        """The names of clusters and brokers, which are topics, and the address of a broker."""
        names: dict[str, None] = {}
        for cluster, broker_names in self._clusters.items():
            names[cluster] = None
            names |= broker_names
        first = next(iter(self._brokers.values()), None)
        address = None if first is None else next(iter(first.broker_addrs.values()))
        return TopicList(broker_addr=address, topic_list=list(names))

    def unit_topics(self) -> TopicList:
        """Topics of a unit."""
        return self._topics_by_flag(lambda flag: bool(flag & UNIT_FLAG))

    def unit_sub_topics(self) -> TopicList:
        """Topics with subscribers in units."""
        return self._topics_by_flag(lambda flag: bool(flag & UNIT_SUB_FLAG))

    def unit_sub_topics_without_unit(self) -> TopicList:
        """Those of them that are in no unit."""
        both = UNIT_FLAG | UNIT_SUB_FLAG
        return self._topics_by_flag(lambda flag: flag & both == UNIT_SUB_FLAG)

    def _topics_by_flag(self, matches: Callable[[int], bool]) -> TopicList:
        topics = [
            topic
            for topic, queues in self._queues.items()
            if matches(next(iter(queues.values())).topic_sys_flag)
        ]
        return TopicList(topic_list=topics)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000


def _news(changes: Iterable[MinBrokerIdChange | None]) -> tuple[MinBrokerIdChange, ...]:
    return tuple(change for change in changes if change is not None)


def _without_write(perm: int) -> int:
    return perm & ~PERM_WRITE


def _queue_data(broker_name: str, config: TopicConfig, *, is_acting_master: bool) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        perm=_without_write(config.perm) if is_acting_master else config.perm,
        read_queue_nums=config.read_queue_nums,
        topic_sys_flag=config.topic_sys_flag,
        write_queue_nums=config.write_queue_nums,
    )
