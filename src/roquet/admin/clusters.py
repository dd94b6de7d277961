"""Clusters and brokers: who is there, how they are, and house-keeping.

Owns :class:`Clusters`.
"""

from __future__ import annotations

from roquet.admin.calls import Calls, check_known
from roquet.admin.results import BrokerInfo, Gathered
from roquet.errors import ClientError
from roquet.remoting.bodies.broker import EpochEntryCache, HARuntimeInfo, KVTable
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from roquet.remoting.codes import RequestCode
from roquet.remoting.headers import namesrv as headers
from roquet.remoting.headers.admin import DeleteExpiredLogRequestHeader
from roquet.remoting.headers.base import decode_header

__all__ = ["Clusters"]


class Clusters:
    """Clusters and brokers; ``admin.clusters``.

    Where ``cluster`` and ``broker`` can be given, the call goes to the masters of that cluster, or
    to that broker (by its name, or as ``host:port``), and without both to all masters.

    Example:
        clusters = await admin.clusters.names()
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def names(self) -> dict[str, list[str]]:
        """By cluster: the names of its brokers, sorted.

        Example:
            assert await admin.clusters.names() == {"DefaultCluster": ["dev"]}
        """
        found: dict[str, set[str]] = {}
        for each in await self._calls.brokers():
            found.setdefault(each.cluster, set()).add(each.name)
        return {cluster: sorted(names) for cluster, names in found.items()}

    async def brokers(self) -> list[BrokerInfo]:
        """Every broker process, masters and slaves.

        Example:
            masters = [each for each in await admin.clusters.brokers() if each.is_master]
        """
        return await self._calls.brokers()

    async def members(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The brokers of one name, by id.

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
    ) -> Gathered[dict[str, str]]:
        """How brokers are: version, rates, disk, queues, by upstream's names.

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
    ) -> Gathered[HARuntimeInfo]:
        """How far slaves are behind their masters.

        Example:
            found = await admin.clusters.replication()
            in_sync = {name: each.in_sync_slave_nums for name, each in found.answers.items()}
        """
        code = RequestCode.GET_BROKER_HA_STATUS
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        return await self._calls.gather(
            targets, lambda address: self._calls.ask_body(HARuntimeInfo, address, code)
        )

    async def epochs(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> Gathered[EpochEntryCache]:
        """Which master wrote which part of a log, on brokers with a controller.

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
        """Have producers send to other brokers, before this one is stopped; how many topics.

        Every name server is told. A broker that registers anew is written to again.

        Raises:
            NotFound: There is no such broker.
            BrokersFailed: Some name servers were not told.

        Example:
            count = await admin.clusters.forbid_writes("dev")
        """
        check_known("broker", broker_name, [each.name for each in await self.brokers()])
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        header = headers.BrokerNameRequestHeader(broker_name=broker_name)
        told = (await self._calls.name_servers(code, header)).complete("Taking the permission")
        kind = headers.WipeWritePermOfBrokerResponseHeader
        return max(decode_header(kind, each.ext_fields).wipe_topic_count for each in told.values())

    async def allow_writes(self, broker_name: str) -> int:
        """Have producers send to a broker again; how many topics.

        Raises:
            NotFound: There is no such broker.
            BrokersFailed: Some name servers were not told.

        Example:
            count = await admin.clusters.allow_writes("dev")
        """
        check_known("broker", broker_name, [each.name for each in await self.brokers()])
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        header = headers.BrokerNameRequestHeader(broker_name=broker_name)
        told = (await self._calls.name_servers(code, header)).complete("Giving the permission")
        return max(
            decode_header(
                headers.AddWritePermOfBrokerResponseHeader, each.ext_fields
            ).add_topic_count
            for each in told.values()
        )

    # ------------------------------------------------------------------------- house-keeping

    async def clean_expired_queues(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Delete queue files whose messages are gone; the brokers that did.

        Raises:
            BrokersFailed: Some did not.

        Example:
            brokers = await admin.clusters.clean_expired_queues()
        """
        return await self._tell(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cluster, broker)

    async def clean_unused_topics(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Delete the queues of topics that are no more; the brokers that did.

        Raises:
            BrokersFailed: Some did not.

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
        """Delete expired files of the log now, not at the set hour; the brokers that do.

        Args:
            cluster: Only its brokers.
            broker: Only this one.
            archived_offset: Delete what ends at or before this physical offset instead, however
                young; only Roquet knows this, Apache RocketMQ deletes what is expired.

        Raises:
            BrokersFailed: Some do not.
            ClientError: A broker knows nothing of ``archived_offset``; it deletes what is expired.

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
                    detail="it is one of Apache RocketMQ, and was asked to delete what is older "
                    "than its fileReservedTime",
                    hint="Lower its fileReservedTime, or stop it to have them deleted.",
                )
        return list(answers)

    async def _tell(self, code: RequestCode, cluster: str | None, broker: str | None) -> list[str]:
        targets = await self._calls.masters(cluster=cluster, broker=broker)
        told = await self._calls.gather(targets, lambda address: self._calls.ask(address, code))
        return list(told.complete(code.name))
