"""What administrators and dashboards query, from Roquet and from Apache RocketMQ in the same state.

Code, remark, ext fields and body have to be the same, but for times, ports and ids. The order of
tables is free: bodies are compared piece by piece, in any order.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

import pytest

from roquet.remoting.client import RemotingClient
from roquet.remoting.codes import RequestCode
from tests.interop.agent import Consumer, Outgoing, Producer
from tests.interop.asker import Ask, Asker, make_ask
from tests.interop.cluster import APACHE, ROQUET
from tests.interop.mqadmin_shape import shape_text
from tests.interop.mqadmin_side import BROKER_NAME, Side
from tests.patience import PATIENT

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("mqadmin")]

TOPIC = "Reads"
GROUP = "reads_group"
PRODUCERS = "reads_producers"
QUEUES = 2
MESSAGES = 6

# Offsets in the log, too: other tests may have written to it.
MASKS = [
    (r'Tps":[\d.E-]+', 'Tps":<rate>'),
    (r'(physicOffset|masterCommitLogMaxOffset)":\d+', r'\1":<place>'),
]

NO_TIMER = "rmq_sys_wheel_timer"
"""There is no timer wheel, so it has no topic."""

TOPIC_FIELDS = {"topic": TOPIC}
QUEUE_FIELDS = {"topic": TOPIC, "queueId": 1}

OF_BROKER: Sequence[Ask] = (
    make_ask(RequestCode.GET_TOPIC_CONFIG, "", topic=TOPIC, lo="true"),
    make_ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, "", group=GROUP),
    make_ask(RequestCode.GET_TOPIC_STATS_INFO, "", **TOPIC_FIELDS),
    make_ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, "", **TOPIC_FIELDS),
    make_ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, "", group=GROUP),
    make_ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, "", group=GROUP, topic=TOPIC),
    make_ask(RequestCode.QUERY_CONSUME_TIME_SPAN, "", group=GROUP, topic=TOPIC),
    make_ask(RequestCode.QUERY_CORRECTION_OFFSET, "", topic=TOPIC, compareGroup=GROUP),
    make_ask(RequestCode.GET_CONSUME_STATS, "of-topic", consumerGroup=GROUP, topic=TOPIC),
    make_ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, "", consumerGroup=GROUP),
    make_ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, "", producerGroup=PRODUCERS),
    make_ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, "", consumerGroup=GROUP),
    make_ask(RequestCode.GET_MAX_OFFSET, "", **QUEUE_FIELDS),
    make_ask(RequestCode.GET_MIN_OFFSET, "", **QUEUE_FIELDS),
    make_ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "first", **QUEUE_FIELDS, timestamp=0),
    make_ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "last", **QUEUE_FIELDS, timestamp=1 << 50),
    make_ask(RequestCode.GET_EARLIEST_MSG_STORETIME, "", **QUEUE_FIELDS),
    make_ask(RequestCode.QUERY_CONSUMER_OFFSET, "", **QUEUE_FIELDS, consumerGroup=GROUP),
    make_ask(RequestCode.QUERY_CONSUME_QUEUE, "", **QUEUE_FIELDS, index=1, count=2),
    make_ask(
        RequestCode.QUERY_CONSUME_QUEUE,
        "of-group",
        **QUEUE_FIELDS,
        index=0,
        count=9,
        consumerGroup=GROUP,
    ),
    make_ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, "look", group=GROUP, topic=TOPIC),
    make_ask(
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, "ban", group="x", topic="X", readable="false"
    ),
    make_ask(
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, "lift", group="x", topic="X", readable="true"
    ),
    make_ask(RequestCode.GET_BROKER_HA_STATUS, ""),
    make_ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, ""),
    make_ask(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        "",
        group=GROUP,
        topic=TOPIC,
        clientAddr="",
    ),
)

OF_NAMESRV: Sequence[Ask] = (
    make_ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, "", **TOPIC_FIELDS),
    make_ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, "standard", topic=TOPIC, acceptStandardJsonOnly="true"
    ),
    make_ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, "unknown", topic="Nowhere"),
    make_ask(RequestCode.GET_BROKER_CLUSTER_INFO, ""),
    make_ask(
        RequestCode.GET_BROKER_MEMBER_GROUP,
        "",
        clusterName="DefaultCluster",
        brokerName=BROKER_NAME,
    ),
    make_ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, ""),
    make_ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, ""),
    make_ask(RequestCode.GET_TOPICS_BY_CLUSTER, "", cluster="DefaultCluster"),
    make_ask(RequestCode.GET_UNIT_TOPIC_LIST, ""),
    make_ask(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, ""),
    make_ask(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, ""),
    make_ask(RequestCode.GET_TOPICS_BY_CLUSTER, "unknown", cluster="nobody"),
    make_ask(RequestCode.GET_KV_CONFIG, "unknown", namespace="none", key="none"),
    make_ask(RequestCode.GET_KVLIST_BY_NAMESPACE, "unknown", namespace="none"),
    make_ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, "unknown", brokerName="nobody"),
)

READS = (*OF_BROKER, *OF_NAMESRV)

Pieces = Mapping[str, Mapping[str, list[str]]]
"""The pieces of the answers of each side by the name of the request."""


async def ask_all(side: Side) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    async with RemotingClient(config=PATIENT) as client:
        for address, requests in (
            (side.values["broker"], OF_BROKER),
            (side.values["namesrv"], OF_NAMESRV),
        ):
            asker = Asker(await client.connect(address))
            for request in requests:
                answer = await asker.ask(request)
                fields = sorted((answer.ext_fields or {}).items())
                head = f"{answer.code} {answer.remark} {fields}"
                texts = [head, *sorted(re.split(r"[\[\]{},]+", answer.body.decode()))]
                found[request.name] = [
                    shape_text(text, side.names, MASKS) for text in texts if NO_TIMER not in text
                ]
    return found


@pytest.fixture(scope="module")
def pieces(twins: Sequence[Side]) -> Pieces:
    """Both sides get a topic with messages and a live consumer, then all requests."""
    found: dict[str, dict[str, list[str]]] = {each.name: {} for each in READS}
    clients = [start_clients(side) for side in twins]
    for side, (producer, consumer) in zip(twins, clients, strict=True):
        wait_known(side)
        for name, texts in asyncio.run(ask_all(side)).items():
            found[name][side.kind] = texts
        consumer.stop()
        producer.stop()
    return found


def start_clients(side: Side) -> tuple[Producer, Consumer]:
    """A producer whose messages a consumer has got."""
    side.run(["updateTopic", "-b", "{broker}", "-t", TOPIC, "-r", "2", "-w", "2"])
    side.run(["updateSubGroup", "-b", "{broker}", "-g", GROUP])
    producer = side.agent.producer(side.cluster.namesrv, PRODUCERS)
    bodies = [f"read {i}" for i in range(MESSAGES)]
    messages = [
        Outgoing(body, tags="TagA", queue=(BROKER_NAME, i % QUEUES))
        for i, body in enumerate(bodies)
    ]
    producer.send(TOPIC, messages, "queue")
    consumer = side.agent.push(side.cluster.namesrv, TOPIC, GROUP, expression="TagA")
    consumer.wait_for(bodies)
    return producer, consumer


def wait_known(side: Side) -> None:
    """The broker knows both clients, and the consumer has committed, ten seconds after its start.

    By then no pull is in flight that commits less.
    """
    each = MESSAGES // QUEUES
    side.wait_printed(["producerConnection", "-g", PRODUCERS, "-t", TOPIC], " JAVA ")
    side.wait_printed(
        ["consumerProgress", "-g", GROUP],
        *(f"{TOPIC} {BROKER_NAME} {queue_id} {each} {each}" for queue_id in range(QUEUES)),
    )


@pytest.mark.parametrize("read", READS, ids=lambda each: each.name)
def test_same_response(pieces: Pieces, read: Ask) -> None:
    assert pieces[read.name][ROQUET] == pieces[read.name][APACHE]
