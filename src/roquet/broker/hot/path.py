"""The hot path of a broker, and the hot readers of its connections.

Owns the order of a burst: consult the store, let compiled code handle the plain requests, report to
the store. Compiled code appends to the store's files and writes the responses itself; the store
decides what may be appended, and when a response may be sent.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.broker.hot.counts import add_pulls, add_sends
from roquet.broker.hot.responses import WaitingResponses, ipv4_peer, response_templates
from roquet.broker.hot.rules import HotRules
from roquet.broker.processor.inner_message import added_properties
from roquet.broker.processor.pull_message import MESSAGES_MAX, PullMessageProcessor
from roquet.broker.processor.send_answer import SendAnswers
from roquet.broker.processor.send_message import SendMessageProcessor
from roquet.remoting.bodies.route import MASTER_ID
from roquet.remoting.connection import Connection
from roquet.remoting.frame import Received
from roquet.remoting.hot_reader import HOT_OUTPUT_BYTES, Taken
from roquet.remoting.processor import Port
from roquet.runtime import compiled
from roquet.store.config import BrokerRole

if compiled.is_built("roquet.broker.hot._requests"):
    from roquet.broker.hot import _requests, _send

__all__ = ["HotPath", "HotReader", "make_hot_path"]


def make_hot_path(
    components: BrokerComponents, sends: SendMessageProcessor, pulls: PullMessageProcessor
) -> HotPath | None:
    """Return the hot path of a broker, ``None`` if it is not built or must not be used."""
    store = components.log_store
    if (
        not compiled.is_used("roquet.broker.hot._requests")
        or store.appender.compiled is None
        or store.config.force_verify_property_crc
        or components.store is not store  # plug-ins see all puts
        or components.store_host.is_ipv6
    ):
        return None
    hot_path = HotPath(components, HotRules(components, sends, pulls), pulls)
    forget = hot_path.requests.pulls.forget_plans
    sends.plain_topics.append(hot_path.requests.sends.approve_topic)
    components.topics.changed.append(hot_path.requests.sends.forget_topics)
    for manager in (components.topics, components.groups, components.consumers):
        manager.changed.append(forget)
    components.stats.sources.append(hot_path.collect)
    return hot_path


class HotPath:
    """What the hot readers of a broker share.

    Args:
        components: The broker's components.
        rules: What the hot path may do.
        pulls: The reference path of pulls.

    Attributes:
        puts: The puts of the store.
        reading: Lock that is held while the log is read.
        requests: The compiled code.
        requests_taken: How many requests it has handled.
        waits: Whether responses to sends wait for the disk or a slave.
        serves_pulls: Whether pulls may be plain; not on a slave, for example.
        consume_hooks: Called around every pull; if there are any, no pull is plain.
    """

    def __init__(
        self, components: BrokerComponents, rules: HotRules, pulls: PullMessageProcessor
    ) -> None:
        config, store = components.config, components.log_store
        self.puts = store.puts
        self.reading = store.puts.reading()
        self.store_flags = store.flags
        self.store_stats = store.stats
        self.clock = components.clock
        self.waits = store.acks.is_needed
        self.requests_taken = 0
        self._flow = components.flow
        self._stats = components.stats
        self.consume_hooks = pulls.consume_hooks
        self.serves_pulls = (
            config.broker_id == MASTER_ID
            and store.config.broker_role is not BrokerRole.SLAVE
            and not config.reject_pull_consumer
        )
        self._answers = SendAnswers(components)
        append = store.appender.compiled
        assert append is not None, "there is no hot path without it"
        self.requests = _requests.PlainRequests(
            append,
            store,
            rules,
            components.store_host,
            added_properties(config),
            response_templates(self._answers),
            memory_bytes=store.reader.memory_bytes,
            pull_max=max(store.config.transfer_count_in_memory_max, MESSAGES_MAX),
        )

    def open(self, connection: Connection) -> HotReader | None:
        """Return the hot reader of a new connection; there is none over IPv6."""
        host = ipv4_peer(connection)
        return None if host is None else HotReader(self, _send.Peer(connection, *host))

    def waiting(self, connection: Connection, frames: bytes) -> WaitingResponses:
        """Hold back the responses to the sends of a burst until the store confirms them."""
        return WaitingResponses(
            connection,
            frames,
            self.requests.waiting_answers,
            self.requests.sends.drain(),
            answers=self._answers,
            flow=self._flow,
            stats=self._stats,
            clock=self.clock,
        )

    def count(self, requests: int) -> None:
        """Count the requests that compiled code has just handled."""
        self.requests_taken += requests
        if self.requests.gets:
            self.store_stats.get_found += self.requests.gets
            self.store_stats.get_messages += self.requests.got_messages

    def collect(self) -> None:
        """Add the counts of compiled code to the broker's statistics."""
        add_sends(self._stats, self.requests.sends.drain(), latency_ms=0)
        add_pulls(
            self._stats,
            (
                (plan.group, plan.topic, messages, size_bytes, queues)
                for plan, messages, size_bytes, queues in self.requests.pulls.drain()
            ),
        )


class HotReader:
    """Takes the plain requests from one connection.

    Attributes:
        path: The hot path that all readers share.
    """

    __slots__ = ("_may_pull", "_peer", "path")

    def __init__(self, path: HotPath, peer: _send.Peer) -> None:
        self.path = path
        self._peer = peer
        self._may_pull = path.serves_pulls and peer.connection.port is Port.MAIN

    def take(self, data: Received, position: int) -> Taken:
        """Handle plain requests from ``position`` on."""
        path, peer = self.path, self._peer
        plain = path.requests
        pulls = self._may_pull and not path.consume_hooks and path.store_flags.is_readable
        read_requests, read_responses = 0, b""
        if pulls and peer.is_reader:
            position, read_requests, read_responses = self._read(data, position)
            if position == len(data):
                return position, read_requests, read_responses
        puts = path.puts.begin_plain_puts()
        waiting = None
        try:
            position, requests, responses, held = plain.take(
                data,
                position,
                peer,
                now_ms=puts.now_ms,
                appends=puts.is_allowed,
                dispatch=puts.dispatch,
                waits=path.waits,
                pulls=pulls,
                max_output=HOT_OUTPUT_BYTES,
            )
            if path.waits and plain.messages:
                waiting = path.waiting(peer.connection, held)
        finally:
            path.puts.finish_plain_puts(puts, plain.messages, waiting)
        peer.is_reader = plain.gets > 0 and not plain.messages
        path.count(requests)
        if read_requests:
            return position, read_requests + requests, read_responses + responses
        return position, requests, responses

    def _read(self, data: Received, position: int) -> Taken:
        """Handle requests that append nothing, from a peer that recently sent only such."""
        path = self.path
        with path.reading:
            position, requests, responses, _ = path.requests.take(
                data,
                position,
                self._peer,
                now_ms=path.clock.now_ms(),
                appends=False,
                dispatch=False,
                waits=False,
                pulls=True,
                max_output=HOT_OUTPUT_BYTES,
            )
        path.count(requests)
        return position, requests, responses
