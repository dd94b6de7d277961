"""Whether the master of a slave is there, and what follows from that.

Owns a poll of the name servers for the brokers of this broker's name, which upstream makes only
for slaves that act as master, and tells the parts of a slave:

* replication follows the master's HA address, unless the settings name one;
* while the master is registered, a consumer that has read everything here goes back to it;
  otherwise its pulls are held here until messages arrive or the master is back.

Without the latter, consumers that have read everything would pull again and again without pause
while there is no master, since a client that cannot go to the master asks the slave again.

A name server before 5.0 does not know the request; there, and if none responds, registrations tell.
"""

from __future__ import annotations

import asyncio
import logging

from roquet.broker.components import BrokerComponents
from roquet.broker.processor.pull_response import PullResponse
from roquet.broker.service.master_tables import MasterTables
from roquet.errors import RoquetError
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.bodies.route import MASTER_ID, GetBrokerMemberGroupResponseBody
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.headers.namesrv import GetBrokerMemberGroupRequestHeader

__all__ = ["MasterWatch"]

log = logging.getLogger(__name__)

POLL_INTERVAL_MS = 3_000
TIMEOUT_MS = 3_000


class MasterWatch:
    """Watches the master of this slave.

    Args:
        components: The broker's components.
        pulls: Learns the smallest broker id.
    """

    def __init__(self, components: BrokerComponents, pulls: PullResponse) -> None:
        self._broker = components
        self._master = components.master
        self._pulls = pulls
        self._tables = MasterTables(components.client)
        self._has_fixed_address = False
        self._look_now = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start watching."""
        self._has_fixed_address = bool(self._broker.ha.ha_master_address)
        self._master.changed.append(self._changed)
        self._master.look = self._look_now.set
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop watching; safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            self._master.changed.remove(self._changed)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(POLL_INTERVAL_MS / 1000):
                    await self._look_now.wait()
            except TimeoutError:
                pass
            self._look_now.clear()
            try:
                await self.poll()
            except Exception:
                # The next poll must follow, whatever it is.
                log.exception("the poll for the master failed")

    async def poll(self) -> None:
        """Ask each name server for the master, and a new master for its HA address."""
        for namesrv in self._broker.registration.addresses:
            try:
                address = await self._master_at(namesrv)
            except RoquetError:
                # The registration notices and logs it too.
                continue
            if address is not None:
                self._master.said(namesrv, address, "")
        master = self._master
        if master.is_listed and master.address and not master.ha_address:
            try:
                info = await self._tables.ha_info(master.address)
            except RoquetError as error:
                log.info("HA address of master %s: %s", master.address, error.message)
                return
            master.found_ha_address(master.address, info.master_ha_address or "")

    async def _master_at(self, namesrv: str) -> str | None:
        """The master's address, empty if there is none; ``None`` if the name server cannot say."""
        config = self._broker.config
        answer = await self._broker.client.invoke(
            namesrv,
            RequestCode.GET_BROKER_MEMBER_GROUP,
            GetBrokerMemberGroupRequestHeader(
                cluster_name=config.cluster_name, broker_name=config.broker_name
            ),
            timeout_ms=TIMEOUT_MS,
        )
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return None
        group = decode_body(GetBrokerMemberGroupResponseBody, answer.body).broker_member_group
        return "" if group is None else group.broker_addrs.get(MASTER_ID, "")

    def _changed(self) -> None:
        master = self._master
        if master.ha_address and not self._has_fixed_address:
            self._broker.ha.update_ha_master_address(master.ha_address)
        least_id = MASTER_ID if master.is_listed else self._broker.config.broker_id
        if least_id != self._pulls.min_broker_id:
            log.info(
                "The master %s is %s.",
                master.address,
                "registered again" if master.is_listed else "not registered any more",
            )
            self._pulls.min_broker_id = least_id
            if master.is_listed:
                self._broker.hold.notify_master_online()
