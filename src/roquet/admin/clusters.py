"""Clusters and brokers: membership, state, permissions and cleanup.

Owns :class:`Clusters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from roquet.admin.calls import Calls, Target, check_known
from roquet.admin.results import BrokerInfo, ReplicaLag, ServerResults
from roquet.client.record_reader import read_message
from roquet.errors import ClientError, CorruptRecord, NoRoute, ProtocolError
from roquet.remoting.bodies.broker import EpochEntryCache, HARuntimeInfo, KVTable
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers import namesrv as headers
from roquet.remoting.headers.admin import DeleteExpiredLogRequestHeader
from roquet.remoting.headers.base import decode_header
from roquet.remoting.headers.pull import ViewMessageRequestHeader

__all__ = ["Clusters"]

_OR_NO_MESSAGE = frozenset(
    int(each)
    for each in (
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.QUERY_NOT_FOUND,
    )
)


class Clusters:
    """Clusters and brokers; ``admin.clusters``.

    Calls with ``cluster`` or ``broker`` go to the masters of that cluster, or to that broker (by
    its name, or as ``host:port``); without both, to all masters.

    Example:
        clusters = await admin.clusters.names()
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def names(self) -> dict[str, list[str]]:
        """Return the names of the brokers of each cluster, sorted.

        Example:
            assert await admin.clusters.names() == {"DefaultCluster": ["dev"]}
        """
        found: dict[str, set[str]] = {}
        for each in await self._calls.brokers():
            found.setdefault(each.cluster, set()).add(each.name)
        return {cluster: sorted(names) for cluster, names in found.items()}

    async def brokers(self) -> list[BrokerInfo]:
        """Return every broker process, masters and slaves.

        Example:
            masters = [each for each in await admin.clusters.brokers() if each.is_master]
        """
        return await self._calls.brokers()

    async def members(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """Return the brokers with one name, by id.

        Example:
            group = await admin.clusters.members("DefaultCluster", "dev")
        """
        header = headers.GetBrokerMemberGroupRequestHeader(
            cluster_name=cluster, broker_name=broker_name
        )
        answer = await self._calls.name_server(RequestCode.GET_BROKER_MEMBER_GROUP, header)
        found = decode_body(GetBrokerMemberGroupResponseBody, answer.body).broker_member_group
        return found or BrokerMemberGroup(cluster=cluster, broker_name=broker_name)

    async def runtime(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> ServerResults[dict[str, str]]:
        """Return the runtime info of brokers: version, rates, disk, queues, by upstream's names.

        Example:
            found = await admin.clusters.runtime(broker="dev")
            version = found.answers["dev"]["brokerVersionDesc"]
        """
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(targets, self._runtime)

    async def _runtime(self, address: str) -> dict[str, str]:
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        return (await self._calls.ask_body(KVTable, address, code)).table

    async def replication(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> ServerResults[HARuntimeInfo]:
        """Return how far slaves are behind their masters.

        Example:
            found = await admin.clusters.replication()
            in_sync = {name: each.in_sync_slave_nums for name, each in found.answers.items()}
        """
        code = RequestCode.GET_BROKER_HA_STATUS
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(
            targets, lambda address: self._calls.ask_body(HARuntimeInfo, address, code)
        )

    async def replica_lag(
        self, brokers: Sequence[BrokerInfo] | None = None
    ) -> ServerResults[ReplicaLag]:
        """Return how far slaves are behind their masters, by the address of the slave.

        A slave without a registered master is a failure, like one that does not respond.

        Args:
            brokers: Only slaves among these; all by default.

        Example:
            found = await admin.clusters.replica_lag()
            late = [each.broker.name for each in found.answers.values() if each.behind_bytes]
        """
        known = await self.brokers()
        masters = {(each.cluster, each.name): each.address for each in known if each.is_master}
        slaves = {
            each.address: each
            for each in (known if brokers is None else brokers)
            if not each.is_master
        }

        async def measure(address: str) -> ReplicaLag:
            slave = slaves[address]
            master = masters.get((slave.cluster, slave.name))
            if master is None:
                raise NoRoute(f"{slave.name} has no master", hint="Start it.")
            return await self._lag(slave, master)

        targets = [Target(address, address) for address in slaves]
        return await self._calls.gather(targets, measure)

    async def _lag(self, slave: BrokerInfo, master: str) -> ReplicaLag:
        said = await self._runtime(slave.address)
        try:
            slave_end = int(said["commitLogMaxOffset"])
            # The log of a slave may end inside a message, which it has not dispatched.
            next_message = slave_end - int(said.get("dispatchBehindBytes", "0"))
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"{slave.address} does not say where its log ends") from error
        # Asked second, so that a slave never seems to be ahead.
        code = RequestCode.GET_BROKER_HA_STATUS
        status = await self._calls.ask_body(HARuntimeInfo, master, code)
        behind_bytes = max(status.master_commit_log_max_offset - slave_end, 0)
        if behind_bytes == 0:
            return ReplicaLag(broker=slave, behind_bytes=0, behind_ms=0)
        header = ViewMessageRequestHeader(physical_offset=next_message)
        code = RequestCode.VIEW_MESSAGE_BY_ID
        answer = await self._calls.ask(master, code, header, accept=_OR_NO_MESSAGE)
        behind_ms = None
        with suppress(CorruptRecord):
            if answer.code == ResponseCode.SUCCESS and answer.body:
                message = read_message(answer.body, 0, slave.name)
                age_ms = self._calls.client.clock.now_ms() - message.store_timestamp_ms
                behind_ms = max(age_ms, 0)
        return ReplicaLag(broker=slave, behind_bytes=behind_bytes, behind_ms=behind_ms)

    async def epochs(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> ServerResults[EpochEntryCache]:
        """Return which master wrote which part of the log, on brokers with a controller.

        Example:
            found = await admin.clusters.epochs(broker="dev")
            refusals = found.failures
        """
        code = RequestCode.GET_BROKER_EPOCH_CACHE
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(
            targets, lambda address: self._calls.ask_body(EpochEntryCache, address, code)
        )

    # ---------------------------------------------------------------------------- permission

    async def forbid_writes(self, broker_name: str) -> int:
        """Stop producers from sending to a broker, before its shutdown; returns the topic count.

        Applies to every name server. A broker that registers again becomes writable again.

        Raises:
            NotFound: There is no such broker.
            BrokersFailed: The request failed on some name servers.

        Example:
            count = await admin.clusters.forbid_writes("dev")
        """
        check_known("broker", broker_name, [each.name for each in await self.brokers()])
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        header = headers.BrokerNameRequestHeader(broker_name=broker_name)
        told = (await self._calls.name_servers(code, header)).complete("Forbidding writes")
        kind = headers.WipeWritePermOfBrokerResponseHeader
        return max(decode_header(kind, each.ext_fields).wipe_topic_count for each in told.values())

    async def allow_writes(self, broker_name: str) -> int:
        """Let producers send to a broker again; returns the number of topics.

        Raises:
            NotFound: There is no such broker.
            BrokersFailed: The request failed on some name servers.

        Example:
            count = await admin.clusters.allow_writes("dev")
        """
        check_known("broker", broker_name, [each.name for each in await self.brokers()])
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        header = headers.BrokerNameRequestHeader(broker_name=broker_name)
        told = (await self._calls.name_servers(code, header)).complete("Allowing writes")
        return max(
            decode_header(
                headers.AddWritePermOfBrokerResponseHeader, each.ext_fields
            ).add_topic_count
            for each in told.values()
        )

    # ------------------------------------------------------------------------------- cleanup

    async def clean_expired_queues(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Delete queue files whose messages are gone; returns the brokers that did.

        Raises:
            BrokersFailed: It failed on some brokers.

        Example:
            brokers = await admin.clusters.clean_expired_queues()
        """
        return await self._tell(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cluster, broker)

    async def clean_unused_topics(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Delete the queues of topics that no longer exist; returns the brokers that did.

        Raises:
            BrokersFailed: It failed on some brokers.

        Example:
            brokers = await admin.clusters.clean_unused_topics(cluster="DefaultCluster")
        """
        return await self._tell(RequestCode.CLEAN_UNUSED_TOPIC, cluster, broker)

    async def delete_expired_log(
        self,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        archived_offset: int | None = None,
    ) -> list[str]:
        """Delete expired log files now, not at the set hour; returns the brokers that do.

        Args:
            cluster: Only its brokers.
            broker: Only this one.
            archived_offset: Instead delete files that end at or before this physical offset, as
                soon as the broker's archivedFileReservedTime allows. Only Roquet supports this;
                Apache RocketMQ deletes expired files.

        Raises:
            BrokersFailed: It failed on some brokers.
            ClientError: A broker ignores ``archived_offset``; it deletes expired files.

        Example:
            brokers = await admin.clusters.delete_expired_log(broker="dev")
        """
        code = RequestCode.DELETE_EXPIRED_COMMITLOG
        if archived_offset is None:
            return await self._tell(code, cluster, broker)
        header = DeleteExpiredLogRequestHeader(archived_offset=archived_offset)
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        told = await self._calls.gather(
            targets, lambda address: self._calls.ask(address, code, header)
        )
        answers = told.complete(code.name)
        for name, answer in answers.items():
            if decode_header(type(header), answer.ext_fields) != header:
                raise ClientError(
                    f"The broker {name} deletes segments by their age only.",
                    detail="it runs Apache RocketMQ, and was asked to delete files older "
                    "than its fileReservedTime",
                    hint="Lower its fileReservedTime, or stop it to delete them.",
                )
        return list(answers)

    async def _tell(self, code: RequestCode, cluster: str | None, broker: str | None) -> list[str]:
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        told = await self._calls.gather(targets, lambda address: self._calls.ask(address, code))
        return list(told.complete(code.name))
