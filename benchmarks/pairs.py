"""A master and its slave, both of Apache RocketMQ 5.4.0 or both of Roquet.

Owns starting pairs as sides of a benchmark, and what a master says about its slave. Both brokers of
a pair get the same settings except for their roles; the slave asks the name server where its master
is. A pair is returned once the master has stored a message, which a SYNC_MASTER that needs two
replicas does only with its slave.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import BenchmarkError, Peer
from benchmarks.sides import Parts, Running, Server, Settings, wait_for, wait_listens, wait_stores
from roquet.remoting.bodies.broker import HAConnectionRuntimeInfo, HARuntimeInfo
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from tests.interop.process import ChildProcess, Listening, find_free_port

BROKER_NAME = "pair"
FOLLOW_TIMEOUT_S = 300


@dataclass(frozen=True)
class At:
    """A server that runs already."""

    address: str


class Pair:
    """A side that is a master with a slave, or the same master alone.

    Args:
        name: What messages call it.
        parts: Starts its servers.
        has_slave: Whether there is a slave.
    """

    def __init__(self, name: str, parts: Parts, *, has_slave: bool = True) -> None:
        self.name = name
        self._parts = parts
        self._has_slave = has_slave

    def start(self, folder: Path, settings: Settings) -> Running:
        """Start name server, master and slave, and wait until a message is stored."""
        begin = time.monotonic()
        with ExitStack() as stack:
            namesrv = self._parts.namesrv(folder)
            stack.callback(namesrv.kill)
            wait_listens(namesrv, namesrv.address)
            master = self._broker(folder / "master", namesrv, {**settings, "brokerId": 0})
            stack.callback(master.kill)
            wait_listens(master, master.address)
            slave = None
            if self._has_slave:
                slave = self._start_slave(folder, namesrv, settings)
                stack.callback(slave.kill)
            wait_stores(master, master.address)
            stack.pop_all()
        start_s = time.monotonic() - begin
        return Running(namesrv, master, master.address, namesrv.address, start_s, slave)

    def start_slave(self, folder: Path, running: Running, settings: Settings) -> ChildProcess:
        """Start the slave of a pair again, on the store it had; it is not waited for."""
        running.slave = self._start_slave(folder, At(running.namesrv_address), settings)
        return running.slave

    def _start_slave(self, folder: Path, namesrv: Listening, settings: Settings) -> Server:
        role: Settings = {**settings, "brokerId": 1, "brokerRole": "SLAVE"}
        return self._broker(folder / "slave", namesrv, role)

    def _broker(self, folder: Path, namesrv: Listening, settings: Settings) -> Server:
        port = find_free_port(-2, 1)
        names: Settings = {
            "brokerName": BROKER_NAME,
            "brokerIP2": "127.0.0.1",  # where slaves find the master
            "haListenPort": port + 1,
        }
        return self._parts.broker(folder, namesrv, {**names, **settings}, port=port)


def replication(running: Running) -> HARuntimeInfo:
    """What the master says about its slaves.

    Raises:
        BenchmarkError: It refused.
    """
    with Peer(running.address) as peer:
        peer.request(RequestCode.GET_BROKER_HA_STATUS, {})
        answer = peer.answer()
    if answer.code != ResponseCode.SUCCESS:
        raise BenchmarkError(f"no state of replication: {answer.code} {answer.remark}")
    return decode_body(HARuntimeInfo, answer.body)


def connected_slave(info: HARuntimeInfo) -> HAConnectionRuntimeInfo | None:
    """The slave that has reported what it has; ``None`` while there is none."""
    reported = [each for each in info.ha_connection_info if each.slave_ack_offset >= 0]
    return reported[0] if reported else None


def behind_bytes(info: HARuntimeInfo) -> int:
    """How much of the master's log its slave lacks; all of it without a slave."""
    slave = connected_slave(info)
    copied = 0 if slave is None else slave.slave_ack_offset
    return max(info.master_commit_log_max_offset - copied, 0)


def wait_follows(running: Running) -> int:
    """Wait until the slave has all of the log, and return its length.

    Raises:
        BenchmarkError: The slave has ended, or does not get there.
    """
    end_offset = -1

    def follows() -> bool:
        nonlocal end_offset
        info = replication(running)
        end_offset = info.master_commit_log_max_offset
        return not behind_bytes(info)

    wait_for(running.slave or running.broker, follows, FOLLOW_TIMEOUT_S)
    return end_offset
