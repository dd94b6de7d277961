"""A master and its slave, both of Apache RocketMQ 5.4.0 or both of Roquet.

Owns starting pairs as sides of a benchmark, and what a master says about its slave. Both brokers of
a pair get the same settings except for their roles; the slave asks the name server where its master
is. A pair is returned once the master has stored a message, which a SYNC_MASTER that needs two
replicas does only with its slave. Instead of a slave a master may have a process that drops what it
gets (:mod:`benchmarks.ha_sink`).
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from benchmarks.load import BenchmarkError, Peer
from benchmarks.sides import Parts, Running, Server, Settings, wait_for, wait_listens, wait_stores
from roquet.remoting.bodies.broker import HAConnectionRuntimeInfo, HARuntimeInfo
from roquet.remoting.bodies.codec import decode_body
from roquet.remoting.codes import RequestCode, ResponseCode
from tests.interop.process import ChildProcess, Listening, find_free_port

BROKER_NAME = "pair"
FOLLOW_TIMEOUT_S = 300
ROOT = Path(__file__).resolve().parent.parent


class Second(Enum):
    """What a master has besides itself."""

    SLAVE = "a slave"
    SINK = "a process that drops what it gets"
    NOTHING = "nothing"


@dataclass(frozen=True)
class At:
    """A server that runs already."""

    address: str


class Pair:
    """A side that is a master with a slave, or with something in its place.

    Args:
        name: What messages call it.
        parts: Starts its servers.
        second: What the master has.
    """

    def __init__(self, name: str, parts: Parts, second: Second = Second.SLAVE) -> None:
        self.name = name
        self._parts = parts
        self._second = second

    def start(self, folder: Path, settings: Settings) -> Running:
        """Start name server, master and slave, and wait until a message is stored."""
        begin = time.monotonic()
        with ExitStack() as stack:
            namesrv = self._parts.namesrv(folder)
            stack.callback(namesrv.kill)
            wait_listens(namesrv, namesrv.address)
            port = find_free_port(-2, 1)
            master = self._broker(folder / "master", namesrv, {**settings, "brokerId": 0}, port)
            stack.callback(master.kill)
            wait_listens(master, master.address)
            second: ChildProcess | None = None
            if self._second is Second.SLAVE:
                second = self._start_slave(folder, namesrv, settings)
            elif self._second is Second.SINK:
                second = _start_sink(folder, f"127.0.0.1:{port + 1}")
            if second is not None:
                stack.callback(second.kill)
            wait_stores(master, master.address)
            stack.pop_all()
        start_s = time.monotonic() - begin
        return Running(namesrv, master, master.address, namesrv.address, start_s, second)

    def start_slave(self, folder: Path, running: Running, settings: Settings) -> ChildProcess:
        """Start the slave of a pair again, on the store it had; it is not waited for."""
        running.slave = self._start_slave(folder, At(running.namesrv_address), settings)
        return running.slave

    def _start_slave(self, folder: Path, namesrv: Listening, settings: Settings) -> Server:
        role: Settings = {**settings, "brokerId": 1, "brokerRole": "SLAVE"}
        return self._broker(folder / "slave", namesrv, role, find_free_port(-2, 1))

    def _broker(self, folder: Path, namesrv: Listening, settings: Settings, port: int) -> Server:
        names: Settings = {
            "brokerName": BROKER_NAME,
            "brokerIP2": "127.0.0.1",  # where slaves find the master
            "haListenPort": port + 1,
        }
        return self._parts.broker(folder, namesrv, {**names, **settings}, port=port)


def _start_sink(folder: Path, address: str) -> ChildProcess:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return ChildProcess(
        "sink",
        [sys.executable, "-m", "benchmarks.ha_sink", address],
        folder=folder,
        environment={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


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
