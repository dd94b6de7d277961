"""Registered brokers, their topics, and how they come and go.

Owns upstream's tables:

============================== ==============================================================
``_topics``                    topicQueueTable and topicQueueMappingInfoTable
``_brokers``                   brokerAddrTable: by broker name, the addresses by broker id
``_clusters``                  clusterAddrTable: by cluster, the broker names
``_live``                      brokerLiveTable and filterServerTable
============================== ==============================================================

Invariants:

* No topic, broker name or cluster is in its table without an entry.
* An address is in the table of brokers if and only if it counts as alive under that name.
* A registration that is refused changes nothing; one that is superseded by a later election removes
  its address.
* Settings limit the number of brokers and topics.
* The work for a broker that registers or leaves is linear in its own topics, and is done in steps:
  see :meth:`RouteInfoManager.register_in_steps` and :meth:`RouteInfoManager.sweep`.
* The addresses of a broker name are in the order of their ids, as upstream writes them.
* Silence is measured on a monotonic clock, so setting the machine's clock makes no broker
  disappear.

All values are replaced, never changed in place; connections are only compared. What has to be sent
or closed is returned to the caller. The tables belong to one thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable

import msgspec

from roquet.errors import ProtocolError
from roquet.model.data_version import DataVersion
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.live_brokers import LiveBroker, LiveBrokers
from roquet.namesrv.registration import (
    BrokerKey,
    BrokerRegistration,
    MinBrokerIdChange,
    RegisterBrokerResult,
    SilentBroker,
    check_names,
    is_name,
    min_broker_id_change,
)
from roquet.namesrv.route_query import with_acting_masters
from roquet.namesrv.topic_table import TopicTable, queues_of
from roquet.remoting.bodies.route import (
    MASTER_ID,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from roquet.remoting.bodies.topic import TopicList
from roquet.runtime.clock import Clock

__all__ = ["TOPICS_A_STEP", "RouteInfoManager"]

log = logging.getLogger(__name__)

BROKER_CHANNEL_EXPIRED_MS = 120_000
"""How long a broker may be silent by default."""

TOPICS_A_STEP = 1_000
"""How many topics of a registration are applied before others get their turn."""

UNIT_FLAG = 1
UNIT_SUB_FLAG = 2


class RouteInfoManager:
    """The tables.

    Args:
        config: Returns the settings in force.
        clock: Time.
    """

    def __init__(self, config: Callable[[], NamesrvConfig], clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._topics = TopicTable()
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._clusters_of: dict[str, set[str]] = {}
        self._live = LiveBrokers()

    # Brokers come

    def register(self, broker: BrokerRegistration) -> RegisterBrokerResult | None:
        """Register a broker and its topics.

        Returns:
            What it gets back; ``None`` if it sends a single topic before it ever registered all.

        Raises:
            ProtocolError: A name or an address is invalid, or there are too many brokers or
                topics.
        """
        steps = self.register_in_steps(broker)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: RegisterBrokerResult | None = end.value
                return result

    def register_in_steps(
        self, broker: BrokerRegistration
    ) -> Generator[None, None, RegisterBrokerResult | None]:
        """Like :meth:`register`, but others may get their turn at each ``yield``.

        If the broker leaves or registers again meanwhile, the work ends; a new registration is then
        applied as a whole, whatever its version.
        """
        check_names(broker)
        self._check_room(broker)
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
            self._live.forget(holder, broker.broker_name)
        addresses[broker.broker_id] = broker.address
        self._clusters.setdefault(broker.cluster_name, {})[broker.broker_name] = None
        self._clusters_of.setdefault(broker.broker_name, set()).add(broker.cluster_name)
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
        version = broker.topics.data_version
        is_changed = is_new or self.is_data_version_changed(*broker.key, version)
        live = self._note_alive(broker)
        if broker.broker_id == MASTER_ID or is_prime_slave:
            is_acting = is_prime_slave and data.enable_acting_master
            yield from self._take_topics(
                broker, live, is_changed=is_changed, is_acting_master=is_acting
            )
        live.is_complete = True
        if broker.broker_id < min(before, default=MASTER_ID):
            ha_address = broker.ha_server_address
            changes.append(
                self._min_id_change(data.broker_addrs, offline_address=None, ha_address=ha_address)
            )
        return self._register_result(broker, data, _news(changes))

    def _is_outdated(self, broker: BrokerRegistration, old_address: str | None) -> bool:
        """Whether another address got the same id in a later election."""
        if old_address is None or old_address == broker.address:
            return False
        rival = self._live.get(broker.cluster_name, old_address)
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
        """Drop an address from its previous name, where it would stay forever."""
        before = self._live.get(*broker.key)
        if before is None or before.broker_name == broker.broker_name:
            return None
        return self.unregister(broker.address, before.broker_name)

    def _check_room(self, broker: BrokerRegistration) -> None:
        config = self._config()
        if broker.key not in self._live.table and len(self._live) >= config.brokers_max:
            raise _full("brokers", "maxBrokers", config.brokers_max)
        topics = broker.topics
        name = broker.broker_name
        room = config.topic_routes_max - self._topics.size
        if room >= len(topics.topic_config_table) + len(topics.topic_queue_mapping_info_map):
            return
        new = sum(not self._topics.has(each, name) for each in topics.topic_config_table)
        if new + len(topics.topic_queue_mapping_info_map) > room:
            raise _full("topics of brokers", "maxTopicRoutes", config.topic_routes_max)

    def _take_topics(
        self,
        broker: BrokerRegistration,
        live: LiveBroker,
        *,
        is_changed: bool,
        is_acting_master: bool,
    ) -> Generator[None]:
        topics = broker.topics
        name = broker.broker_name
        table = self._topics
        mappings = topics.topic_queue_mapping_info_map
        if self._config().delete_topic_with_broker_registration and not mappings:
            kept = topics.topic_config_table
            for topic in [topic for topic in table.topics_of(name) if topic not in kept]:
                table.remove(topic, [name])
        for number, config in enumerate(topics.topic_config_table.values(), 1):
            new_topic = config.topic_name
            if new_topic is None or not is_name(new_topic):
                log.warning("Broker %s has a topic with a bad name: %.300r", name, new_topic)
            elif is_changed or not table.has(new_topic, name):
                table.put(new_topic, queues_of(name, config, is_acting_master=is_acting_master))
            if number % TOPICS_A_STEP == 0:
                yield
                if self._live.get(*broker.key) is not live:
                    return
        if is_changed:
            for topic, mapping in mappings.items():
                table.put_mapping(topic, name, mapping)

    def _note_alive(self, broker: BrokerRegistration) -> LiveBroker:
        if broker.key not in self._live.table:
            log.info("Broker %s registered, id %s.", broker.key, broker.broker_id)
        timeout_ms = broker.heartbeat_timeout_ms
        live = LiveBroker(
            broker_name=broker.broker_name,
            last_update_ms=self._now_ms(),
            timeout_ms=BROKER_CHANNEL_EXPIRED_MS if timeout_ms is None else timeout_ms,
            data_version=broker.topics.data_version,
            connection=broker.connection,
            ha_server_address=broker.ha_server_address,
        )
        self._live.put(broker.key, live, broker.filter_servers)
        return live

    def _register_result(
        self,
        broker: BrokerRegistration,
        data: BrokerData,
        news: tuple[MinBrokerIdChange, ...],
    ) -> RegisterBrokerResult:
        if broker.broker_id != MASTER_ID:
            address = data.broker_addrs.get(MASTER_ID, "")
            master = self._live.get(broker.cluster_name, address)
            if master is not None:
                return RegisterBrokerResult(master.ha_server_address, address, news)
        return RegisterBrokerResult(changes=news)

    # Brokers stay

    def heartbeat(self, cluster_name: str, address: str) -> None:
        """Record a heartbeat; a broker that is not registered must register first."""
        live = self._live.get(cluster_name, address)
        if live is not None:
            live.last_update_ms = self._now_ms()

    def data_version(self, cluster_name: str, address: str) -> DataVersion | None:
        """The version of the topics that a broker registered."""
        live = self._live.get(cluster_name, address)
        return None if live is None else live.data_version

    def is_data_version_changed(
        self, cluster_name: str, address: str, data_version: DataVersion | None
    ) -> bool:
        """Whether a broker has to register; any other version counts, a lower one too."""
        live = self._live.get(cluster_name, address)
        return live is None or not live.is_complete or live.data_version != data_version

    # Brokers go

    def unregister(self, address: str, broker_name: str) -> MinBrokerIdChange | None:
        """Drop a broker, and what only it had."""
        # If it stayed alive, the broker would learn that its topics are known, and not register.
        self._live.forget(address, broker_name)
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
                self._topics.forbid_writes(broker_name)
            if min(left) != min(before):
                return self._min_id_change(left, offline_address=address, ha_address=None)
        return None

    def connection_closed(
        self, connection: object, *, limit: int | None = None
    ) -> list[MinBrokerIdChange]:
        """Drop brokers that last registered on a closed connection, up to a limit."""
        return list(_news(map(self._drop, self._live.of_connection(connection, limit))))

    def has_brokers_of(self, connection: object) -> bool:
        """Whether a broker last registered on a connection."""
        return bool(self._live.of_connection(connection, 1))

    @property
    def is_swept(self) -> bool:
        """Whether no entry of a broker that left is still in memory."""
        return self._topics.is_swept

    def sweep(self) -> None:
        """Remove some entries of brokers that left; more calls remove more."""
        self._topics.sweep()

    def scan_not_active(self, *, limit: int | None = None) -> list[SilentBroker]:
        """Drop brokers that were silent for too long, up to a limit."""
        silent = self._live.silent(self._now_ms(), limit)
        for key, live in silent:
            log.warning("Broker %s was silent for more than %s ms.", key, live.timeout_ms)
        return [SilentBroker(key.address, live.connection, self._drop(key)) for key, live in silent]

    def _drop(self, key: BrokerKey) -> MinBrokerIdChange | None:
        live = self._live.get(*key)
        if live is None:
            return None
        return self.unregister(key.address, live.broker_name)

    def _forget_name(self, broker_name: str) -> None:
        del self._brokers[broker_name]
        for cluster in self._clusters_of.pop(broker_name, ()):
            names = self._clusters[cluster]
            names.pop(broker_name, None)
            if not names:
                del self._clusters[cluster]
        self._topics.leave(broker_name)
        self._topics.sweep()

    def _min_id_change(
        self, addresses: dict[int, str], *, offline_address: str | None, ha_address: str | None
    ) -> MinBrokerIdChange | None:
        if not self._config().notify_min_broker_id_changed:
            return None
        return min_broker_id_change(
            addresses, offline_address=offline_address, ha_address=ha_address
        )

    # Topics

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Register the queues of one topic, if all their brokers are registered.

        Raises:
            ProtocolError: There are too many topics.
        """
        by_broker = {queue.broker_name: queue for queue in queues if queue.broker_name}
        if not is_name(topic) or not by_broker.keys() <= self._brokers.keys():
            log.warning("Topic %.300r with an unknown broker or a bad name is ignored.", topic)
        elif by_broker:
            if self._topics.size + len(by_broker) > (limit := self._config().topic_routes_max):
                raise _full("topics of brokers", "maxTopicRoutes", limit)
            for each in by_broker.values():
                self._topics.put(topic, each)

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Drop the route of a topic, in one cluster or in all."""
        if cluster_name:
            self._topics.remove(topic, self._clusters.get(cluster_name, ()))
        else:
            self._topics.remove_topic(topic)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Forbid sends to a broker; return how many topics it has."""
        return self._topics.forbid_writes(broker_name)

    def add_write_perm(self, broker_name: str) -> int:
        """Allow reads and sends again; return how many topics the broker has."""
        return self._topics.allow_all(broker_name)

    # Queries

    def route(self, topic: str) -> TopicRouteData | None:
        """The route of a topic; ``None`` if no broker has it."""
        queues = self._topics.of(topic)
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        route = TopicRouteData(
            broker_datas=brokers,
            filter_server_table=self._filter_servers_of(brokers),
            queue_datas=list(queues.values()),
            topic_queue_mapping_by_broker=self._topics.mappings(topic),
        )
        if self._config().support_acting_master:
            return with_acting_masters(topic, route)
        return route

    def _filter_servers_of(self, brokers: Iterable[BrokerData]) -> dict[str, list[str]]:
        filter_servers = self._live.filter_servers
        if not filter_servers:
            return {}
        return {
            address: servers
            for data in brokers
            for address in data.broker_addrs.values()
            if (servers := filter_servers.get(BrokerKey(data.cluster or "", address)))
        }

    def cluster_info(self) -> ClusterInfo:
        """Clusters and their brokers."""
        return ClusterInfo(
            broker_addr_table=dict(self._brokers),
            cluster_addr_table={cluster: list(names) for cluster, names in self._clusters.items()},
        )

    def member_group(self, cluster_name: str, broker_name: str) -> BrokerMemberGroup:
        """The brokers of a name, possibly none."""
        data = self._brokers.get(broker_name)
        return BrokerMemberGroup(
            broker_addrs={} if data is None else data.broker_addrs,
            broker_name=broker_name,
            cluster=cluster_name,
        )

    def all_topics(self) -> TopicList:
        """All topics."""
        return TopicList(topic_list=list(self._topics.queues))

    def topics_of_cluster(self, cluster_name: str) -> TopicList:
        """The topics that a cluster's brokers have."""
        names = self._clusters.get(cluster_name, {}).keys()
        return TopicList(topic_list=self._topics.of_brokers(names))

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
        return TopicList(topic_list=self._topics.with_flag(lambda flag: bool(flag & UNIT_FLAG)))

    def unit_sub_topics(self) -> TopicList:
        """Topics with subscribers in units."""
        return TopicList(topic_list=self._topics.with_flag(lambda flag: bool(flag & UNIT_SUB_FLAG)))

    def unit_sub_topics_without_unit(self) -> TopicList:
        """Topics with subscribers in units that are in no unit themselves."""
        both = UNIT_FLAG | UNIT_SUB_FLAG
        topics = self._topics.with_flag(lambda flag: flag & both == UNIT_SUB_FLAG)
        return TopicList(topic_list=topics)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000


def _news(changes: Iterable[MinBrokerIdChange | None]) -> tuple[MinBrokerIdChange, ...]:
    return tuple(change for change in changes if change is not None)


def _full(what: str, key: str, limit: int) -> ProtocolError:
    return ProtocolError(
        f"the name server has no room for more {what}: {key} is {limit}",
        code="route_table_full",
        hint=f"Set {key} in the name server's configuration file and restart it.",
    )
