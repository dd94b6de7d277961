"""What the admin tool does, in this order, on both sides.

A step is a command, or something that has to happen before the next command (messages are sent, a
consumer starts). Commands change the state of later ones, so that their order counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from tests.interop.agent import Outgoing
from tests.interop.mqadmin_shape import Drop, Mask
from tests.interop.mqadmin_side import BROKER_NAME, Command, Side

__all__ = ["CHANGING", "COMMANDS", "STEPS", "Step"]

QUEUES = 4
MESSAGES = 8
TOPIC = "Orders"
GROUP = "orders_group"
COPY = "orders_copy"
PRODUCERS = "orders_producers"
RETRY_GROUP = "retry_group"
DEAD_GROUP = "dead_group"
TRACES = "RMQ_SYS_TRACE_TOPIC"


Step = Command | Callable[[Side], None]


def _command(text: str, note: str = "", **more: object) -> Command:
    return Command(text.split(), note, **more)  # type: ignore[arg-type]


def write_lists(side: Side) -> None:
    """The files that the commands for lists read."""
    topics = [
        {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        for name in ("ListedA", "ListedB")
    ]
    (side.folder / "topics.json").write_text(json.dumps(topics))
    groups = [{"groupName": name, "retryMaxTimes": 3} for name in ("listed_a", "listed_b")]
    (side.folder / "groups.json").write_text(json.dumps(groups))


def send_orders(side: Side) -> None:
    """Messages with keys and tags, on all queues."""
    producer = side.agent.producer(side.cluster.namesrv, PRODUCERS)
    messages = [
        Outgoing(
            f"order {i}",
            tags="TagA" if i % 2 else "TagB",
            keys=[f"key-{i}"],
            properties={"colour": "red"},
            queue=(BROKER_NAME, i % QUEUES),
        )
        for i in range(MESSAGES)
    ]
    results = producer.send(TOPIC, messages, "queue")
    side.producers[PRODUCERS] = producer
    side.values |= {"id": results[1].message_id, "offset_id": results[1].offset_message_id}
    # A producer is known from its first heartbeat on, a second after its start.
    side.wait_printed(["producerConnection", "-g", PRODUCERS, "-t", TOPIC], " JAVA ")


def send_trace(side: Side) -> None:
    """A trace as clients write one about a message they sent."""
    unique_id, offset_id = side.values["id"], side.values["offset_id"]
    fields = ["Pub", "1794700000000", "DefaultRegion", PRODUCERS, TOPIC, unique_id, "TagA", "key-1",
              "127.0.0.1:10911", "7", "5", "0", offset_id, "true"]  # fmt: skip
    trace = Outgoing("\x01".join(fields) + "\x02", keys=[unique_id])
    side.producers[PRODUCERS].send(TRACES, [trace], "sync")


def start_consumer(side: Side) -> None:
    side.consumers[GROUP] = side.agent.push(
        side.cluster.namesrv, TOPIC, GROUP, expression="TagA || TagB"
    )


def wait_consumed(side: Side) -> None:
    """The consumer has taken everything and has committed it."""
    side.consumers[GROUP].wait_for([f"order {i}" for i in range(MESSAGES)])
    rows = [f"{TOPIC} {BROKER_NAME} {queue_id}" for queue_id in range(QUEUES)]
    side.wait_printed(["consumerProgress", "-g", GROUP], *rows, "Consume Diff Total: 0")
    printed = side.run(["consumerConnection", "-g", GROUP]).printed
    side.values["client"] = next(
        line.split()[0] for line in printed.splitlines() if " JAVA " in line
    )


def wait_counted(side: Side) -> None:
    """The counters, which are sampled every ten seconds, include the last messages sent.

    These are the ones of sendMsgStatus, which sends one more than it reports, and of clusterRT.
    """
    side.wait_printed(["statsAll", "-a"], "7 NO_CONSUMER")


def send_later(side: Side) -> None:
    """A message that is delivered after a second."""
    later = Outgoing("later", keys=["later"], queue=(BROKER_NAME, 0), delay_level=1)
    side.producers[PRODUCERS].send("ListedB", [later], "queue")
    side.wait_printed(["topicStatus", "-t", "ListedB"], f"{BROKER_NAME} 0 0 1")


def fail_once(side: Side) -> None:
    """A consumer that takes it only on redelivery, and one that never does."""
    for group, failures in ((RETRY_GROUP, 1), (DEAD_GROUP, 9)):
        consumer = side.agent.push(
            side.cluster.namesrv, "ListedB", group, failures=failures, maxReconsumeTimes=1
        )
        consumer.wait(lambda messages: len(messages) == 2, "the message, and the message again")
        # A consumer that stops right after its listener has returned may not commit that message.
        side.wait_printed(
            ["consumerProgress", "-g", group],
            f"%RETRY%{group} {BROKER_NAME} 0 1 1",
            f"ListedB {BROKER_NAME} 0 1 1",
        )
        if group == DEAD_GROUP:
            side.wait_printed(["topicStatus", "-t", f"%DLQ%{group}"], f"{BROKER_NAME} 0 0 1")
        consumer.stop()


def stop_consumer(side: Side) -> None:
    side.consumers[GROUP].stop()


RATES: Sequence[Mask] = ((r"\d+\.\d+", "<rate>"),)
# A client may pull a message twice, when its group changes or it has waited for long.
GETS: Sequence[Mask] = ((r" [1-9]\d*$", " <some>"),)
SPENT: Sequence[Mask] = ((r"spentTimeMills=\d+", "spentTimeMills=<n>"),)
VERSIONS: Sequence[Mask] = ((r'"counter":\d+', '"counter":<n>'),)
INSIDE_CLIENT: Sequence[Mask] = (
    (r"@[0-9a-f]{5,8}\b", "@<hash>"),
    (r"(Lambda\S+)/0x[0-9a-f]+", r"\1/<hash>"),
    (r"\b20\d{12}(\d{3})?\b", "<time>"),
    (r"instanceName : \S+", "instanceName : <name>"),
    (r"( \d+\.\d\d){5} \d+$", " <rates>"),
)
BROKER_NUMBERS: Sequence[Mask] = (
    (r"\b(commitLogDirCapacity|putMessageDistributeTime|runtime) *: .*", r"\1 : <text>"),
    (r"\b((put|get)\w*(Tps|Max|Latency\d+)|commitLogDiskRatio.*|\w+DiskRatio) *: .*", r"\1 : <n>"),
    (r"\bmsgGetTotalTodayNow *: [1-9]\d*", "msgGetTotalTodayNow : <some>"),
    (r"\b(timerReadBehind|remainHowManyDataToFlush) *: .*", r"\1 : <n>"),
)
CLUSTER_NUMBERS: Sequence[Mask] = (
    (r"\d+\.\d+", "<rate>"),
    (r"\b\d+,\d+ms", "<n>,<n>ms"),
    # The lag of Java's timer, which a busy machine causes for a moment.
    (r" +\d+-\d+\(", " <n>-<n>("),
)
PERM_COUNT: Sequence[Mask] = ((r"OK, \d+", "OK, <n>"),)
PATHS: Sequence[Mask] = (
    (r"^(\w*[pP]ath\w*|rocketmqHome|listenPort|haListenPort) =.*", r"\1 = <here>"),
)

TIMER: Drop = (r"rmq_sys_wheel_timer", "there is no timer wheel, so it has no topic")
RETRY_QUEUES: Drop = (r"%RETRY%", "clients commit these when their pulls run out of time")

NO_REPLICATION: Drop = (r"^brokerIP2 ", "nothing listens for slaves, so there is no address")
NO_TLS_CLIENT: Drop = (r'^"useTLS"', "there is no TLS towards name servers to be set")
CPUS: Drop = (r'^("cpuNum".*)?$', "the tool takes a setting of Java's threads for it")

TRACE: Drop = (r"topic='RMQ_SYS_TRACE_TOPIC'", "the body of a trace holds ids")
TOOLS: Drop = (r"^TOOLS_CONSUMER ", "Java may register a client that has just left")

POP = "POP is not built"
COLD = "control of cold data is not built"

STEPS: Sequence[Step] = (
    # Topics.
    write_lists,
    _command(f"updateTopic -b {{broker}} -t {TOPIC} -r {QUEUES} -w {QUEUES}", "on-broker"),
    _command("updateTopic -c DefaultCluster -t Ordered -r 2 -w 2 -o true", "ordered-on-cluster"),
    _command("updateTopic -b {broker} -t Bad/Name", "bad-name"),
    _command("updateTopic -b {broker} -t TBW102", "system-topic"),
    _command("updateTopic -b {broker} -t Attributed -a +message.type=FIFO", "attributes"),
    _command("updateTopic -b {broker} -t Attributed -a +no.such=1", "bad-attribute"),
    _command("updateTopic -b {broker} -t Ordered -w 3 -r 3 -o true", "ordered-on-broker"),
    _command("updateTopic -b {broker} -t Units -p 4 -u true -s true", "units"),
    _command("updateTopic -c nowhere -t Attributed", "unknown-cluster"),
    _command("updateTopic -b {broker} -t Attributed -a message.type=FIFO", "no-sign"),
    _command("updateTopic -b {broker} -t Attributed -r four", "no-number"),
    _command("updateTopicList -b {broker} -f {folder}/topics.json"),
    _command("updateTopicList -c DefaultCluster -f {folder}/topics.json", "on-cluster"),
    _command("updateTopicList -b {broker} -f {folder}/nothing.json", "no-file"),
    _command("updateTopicPerm -b {broker} -t ListedA -p 4"),
    _command("updateTopicPerm -c DefaultCluster -t ListedA -p 6", "on-cluster"),
    _command("updateTopicPerm -b {broker} -t ListedA -p 6", "as-before"),
    _command("updateTopicPerm -b 127.0.0.1:1 -t ListedA -p 6", "unknown-broker"),
    _command("updateTopicPerm -t ListedA -p 6", "nowhere"),
    _command("updateTopicPerm -b {broker} -t Nowhere -p 4", "unknown-topic"),
    _command("topicList", drops=[TIMER], is_ordered=False),
    _command("topicList -c", "with-clusters", drops=[TIMER], is_ordered=False),
    _command(f"topicRoute -t {TOPIC}"),
    _command(f"topicRoute -t {TOPIC} -l", "list"),
    _command("topicRoute -t Nowhere", "unknown-topic"),
    _command(f"topicClusterList -t {TOPIC}"),
    _command("topicClusterList -t Nowhere", "unknown-topic"),
    _command(f"allocateMQ -t {TOPIC} -i 10.0.0.1,10.0.0.2"),
    _command("updateOrderConf -t Ordered -m put -v broker-a:2", "put"),
    _command("updateOrderConf -t Ordered -m get", "get"),
    _command("updateOrderConf -t Ordered -m delete", "delete"),
    _command("updateOrderConf -t Ordered -m get", "gone"),
    _command("updateOrderConf -t Ordered -m put", "put-nothing"),
    _command("updateOrderConf -t Ordered -m look", "unknown-method"),
    # Groups.
    _command(f"updateSubGroup -b {{broker}} -g {GROUP} -r 5 -q 2"),
    _command("updateSubGroup -c DefaultCluster -g orders_other -o true", "on-cluster"),
    _command("updateSubGroupList -b {broker} -f {folder}/groups.json"),
    _command("updateSubGroupList -c DefaultCluster -f {folder}/groups.json", "on-cluster"),
    _command("updateSubGroup -g listed_a", "nowhere"),
    _command(
        "updateSubGroup -b {broker} -g listed_a -s false -m true -d true -i 1 -w 2 -a false",
        "all-flags",
    ),
    _command("getConsumerConfig -g listed_a", "all-flags"),
    _command("updateSubGroup -b {broker} -g bad/name", "bad-name"),
    _command(f"getConsumerConfig -g {GROUP}"),
    _command("getConsumerConfig -g nobody", "unknown-group"),
    _command(f"setConsumeMode -b {{broker}} -t {TOPIC} -g {GROUP} -m PULL", refused=POP),
    # Messages.
    send_orders,
    send_trace,
    start_consumer,
    _command(f"topicStatus -t {TOPIC}", masks=RATES, is_ordered=False),
    _command("topicStatus -t Nowhere", "unknown-topic"),
    _command(f"topicStatus -t {TOPIC} -c DefaultCluster", "of-cluster", masks=RATES),
    _command("topicStatus -t Nowhere -c DefaultCluster", "unknown-topic-of-cluster", masks=RATES),
    _command(f"producerConnection -g {PRODUCERS} -t {TOPIC}"),
    _command(f"producerConnection -g nobody -t {TOPIC}", "unknown-group"),
    _command("producer -b {broker}", is_ordered=False),
    _command("producer -b 127.0.0.1:1", "unreachable"),
    _command(f"producerConnection -g {PRODUCERS} -t Nowhere", "unknown-topic"),
    _command(f"queryMsgByKey -t {TOPIC} -k key-3"),
    _command(f"queryMsgByKey -t {TOPIC} -k nothing", "unknown-key"),
    _command(f"queryMsgByUniqueKey -t {TOPIC} -i {'0' * 32}", "unknown-id"),
    _command(f"queryMsgByOffset -t {TOPIC} -b {BROKER_NAME} -i 1 -o 999", "beyond"),
    _command("queryMsgTraceById -i {id}"),
    _command(f"queryCq -t {TOPIC} -q 0 -i 0 -c 2 -b {{broker}}"),
    _command(f"queryCq -t {TOPIC} -q 9 -i 0 -c 2 -b {{broker}}", "unknown-queue"),
    _command("queryCq -t Nowhere -q 0 -i 0 -c 2 -b {broker}", "unknown-topic"),
    _command(f"printMsg -t {TOPIC}"),
    _command(f"printMsg -t {TOPIC} -s TagA", "tag"),
    _command(f"printMsg -t {TOPIC} -b 0 -e 4102444800000 -d false", "times"),
    _command(f"printMsg -t {TOPIC} -b 4102444800000", "future"),
    _command("printMsg -t Nowhere", "unknown-topic"),
    _command(f"printMsgByQueue -t {TOPIC} -a nowhere -i 0", "unknown-broker"),
    _command(f"queryMsgByOffset -t {TOPIC} -b nowhere -i 0 -o 0", "unknown-broker"),
    _command(f"queryMsgByOffset -t Nowhere -b {BROKER_NAME} -i 0 -o 0", "unknown-topic"),
    _command(f"consumeMessage -t {TOPIC} -b nowhere -i 0", "unknown-broker"),
    _command("consumeMessage -t Nowhere", "unknown-topic"),
    _command(f"queryCq -t {TOPIC} -q 0 -i 1", "of-first-broker"),
    _command("queryCq -t Nowhere -q 0 -i 1", "unknown-route"),
    _command(f"printMsgByQueue -t {TOPIC} -a {BROKER_NAME} -i 1 -p true -s TagB", "no-match"),
    _command(f"printMsgByQueue -t {TOPIC} -a {BROKER_NAME} -i 1", "silent"),
    _command(f"consumeMessage -t {TOPIC}", "topic"),
    _command(f"consumeMessage -t {TOPIC} -c 3", "three"),
    _command(f"consumeMessage -t {TOPIC} -i 2", "no-broker"),
    _command(f"consumeMessage -t {TOPIC} -b {BROKER_NAME} -i 2 -o 9", "beyond"),
    _command(f"consumeMessage -t {TOPIC} -c 0", "none"),
    _command(f"consumeMessage -t {TOPIC} -s 4102444800000", "future"),
    _command(f"printMsgByQueue -t {TOPIC} -a {BROKER_NAME} -i 1 -p true -d true -f true"),
    _command(f"consumeMessage -t {TOPIC} -b {BROKER_NAME} -i 2"),
    _command(f"consumeMessage -t {TOPIC} -b {BROKER_NAME} -i 2 -o 1", "by-offset"),
    _command(f"sendMessage -t {TOPIC} -p hello -k sent-1 -c TagA -b {BROKER_NAME} -i 0"),
    _command("sendMessage -t Fresh -p hello -b broker-a -i 0", "new-topic"),
    _command(f"sendMessage -t {TOPIC} -p hello -i 0", "no-broker"),
    _command(f"sendMessage -t {TOPIC} -p hello -b nowhere -i 0", "unknown-broker"),
    _command("clusterRT -a 3 -s 16 -c nowhere -i 60", "unknown-cluster", endless=True),
    _command("checkMsgSendRT -t ListedA -a 3 -s 16", masks=(*RATES, (r"true \d+$", "true <n>"))),
    _command(f"sendMsgStatus -b {BROKER_NAME} -s 16 -c 3", masks=((r"rt=\d+ms", "rt=<n>ms"),)),
    _command("clusterRT -a 3 -s 16 -c DefaultCluster -i 60", masks=RATES, endless=True),
    # Consumers.
    wait_consumed,
    _command(f"queryMsgById -t {TOPIC} -i {{offset_id}}"),
    _command(f"queryMsgById -t {TOPIC} -i {{id}}", "unique-id"),
    _command(f"queryMsgByUniqueKey -t {TOPIC} -i {{id}}"),
    _command(f"queryMsgByUniqueKey -t {TOPIC} -i {{id}} -a -c DefaultCluster", "all"),
    _command(f"queryMsgByUniqueKey -t {TOPIC} -i {{id}} -c nowhere", "unknown-cluster"),
    _command(f"queryMsgById -t {TOPIC} -i {{id}},{{offset_id}} -f UTF-8", "two-with-bodies"),
    _command(f"queryMsgById -t {TOPIC} -i nonsense", "nonsense"),
    _command("queryMsgById -t Nowhere -i nonsense", "unknown-topic"),
    _command(f"queryMsgByOffset -t {TOPIC} -b {BROKER_NAME} -i 1 -o 1 -f UTF-8", "with-body"),
    _command(f"queryMsgByOffset -t {TOPIC} -b {BROKER_NAME} -i one -o 1", "no-number"),
    _command(f"queryMsgByKey -t {TOPIC} -k key-3 -m 1 -b 0 -e 4102444800000", "times"),
    _command("queryMsgByKey -t Nowhere -k key-3", "unknown-topic"),
    _command("queryMsgTraceById -i nothing", "unknown-id"),
    _command(f"queryMsgByOffset -t {TOPIC} -b {BROKER_NAME} -i 1 -o 0"),
    _command(f"queryCq -t {TOPIC} -q 0 -i 0 -c 2 -b {{broker}} -g {GROUP}", "of-group"),
    _command(f"consumerConnection -g {GROUP}"),
    _command(f"consumerConnection -g {GROUP} -b {{broker}}", "on-broker"),
    _command("consumerConnection -g nobody", "unknown-group"),
    _command(f"consumerProgress -g {GROUP}", masks=RATES, drops=[RETRY_QUEUES]),
    _command(f"consumerProgress -g {GROUP} -t {TOPIC} -s true", "topic", masks=RATES),
    _command("consumerProgress", "all", masks=RATES, drops=[TOOLS], is_ordered=False),
    _command("consumerProgress -g nobody", "unknown-group"),
    _command(f"consumerStatus -g {GROUP}"),
    _command(
        f"consumerStatus -g {GROUP} -i {{client}}",
        "client",
        masks=INSIDE_CLIENT,
        drops=[RETRY_QUEUES],
    ),
    _command("consumerStatus -g nobody", "unknown-group"),
    _command(f"consumerStatus -g {GROUP} -i nobody", "unknown-client"),
    _command("brokerConsumeStats -b {broker}", drops=[RETRY_QUEUES], is_ordered=False),
    _command("brokerConsumeStats -b {broker} -o true", "ordered"),
    _command("brokerConsumeStats -b {broker} -l 1", "behind"),
    _command(f"consumerProgress -g {GROUP} -t Nowhere", "unknown-topic", masks=RATES),
    _command(
        f"queryMsgByUniqueKey -t {TOPIC} -i {{id}} -g {GROUP} -d {{client}}", "consume", masks=SPENT
    ),
    _command(f"queryMsgByUniqueKey -t {TOPIC} -i {{id}} -g {GROUP} -d nobody", "unknown-client"),
    _command(
        f"queryMsgById -t {TOPIC} -i {{offset_id}} -g {GROUP} -d {{client}}", "consume", masks=SPENT
    ),
    wait_counted,
    _command(f"statsAll -t {TOPIC}", masks=(*RATES, *GETS)),
    _command("statsAll -a", "active", masks=(*RATES, *GETS), is_ordered=False),
    _command(f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0", "live", is_ordered=False),
    _command(f"skipAccumulatedMessage -g {GROUP} -t {TOPIC}", "live", is_ordered=False),
    stop_consumer,
    _command(f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s -1", "offline", is_ordered=False),
    _command(
        f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s now -b {{broker}} -q 1 -o 1", "to-offset"
    ),
    _command(
        f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s now -b {{broker}} -q 1 -o 999", "out-of-range"
    ),
    _command(f"resetOffsetByTime -g {GROUP} -t Nowhere -s now", "unknown-topic"),
    _command(f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0 -b {{broker}} -q 1", "queue-by-time"),
    _command(
        f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 2026-01-01#00:00:00:000 -f false",
        "by-date",
        is_ordered=False,
    ),
    _command(f"skipAccumulatedMessage -g {GROUP} -t Nowhere", "unknown-topic"),
    _command(f"skipAccumulatedMessage -g {GROUP} -t {TOPIC}", "offline", is_ordered=False),
    _command(f"cloneGroupOffset -s {GROUP} -d {COPY} -t {TOPIC} -o true", "unknown-target"),
    _command(f"updateSubGroup -b {{broker}} -g {COPY}", "copy"),
    _command(f"cloneGroupOffset -s {GROUP} -d {COPY} -t {TOPIC} -o true"),
    _command("brokerConsumeStats -b {broker}", "cloned", drops=[RETRY_QUEUES], is_ordered=False),
    _command(f"cloneGroupOffset -s nobody -d {COPY} -t {TOPIC} -o true", "unknown-group"),
    # Delays and retries.
    send_later,
    _command("printMsg -t ListedB", "delayed"),
    _command("printMsg -t SCHEDULE_TOPIC_XXXX", "delay-queue"),
    fail_once,
    _command(f"printMsg -t %RETRY%{RETRY_GROUP}", "retries"),
    _command(f"printMsg -t %RETRY%{DEAD_GROUP}", "retries-in-vain"),
    _command(f"topicStatus -t %DLQ%{DEAD_GROUP}", "dead-letters", masks=RATES),
    _command(f"queryMsgByOffset -t %DLQ%{DEAD_GROUP} -b {BROKER_NAME} -i 0 -o 0", "dead-letter"),
    _command(f"topicRoute -t %DLQ%{DEAD_GROUP}", "dead-letters"),
    _command(f"consumerProgress -g {RETRY_GROUP}", "after-a-retry", masks=RATES),
    _command("queryMsgByKey -t ListedB -k later", "delayed"),
    # The broker.
    _command("clusterList", masks=CLUSTER_NUMBERS),
    _command("clusterList -m", "more", masks=GETS),
    _command("clusterList -c nowhere", "unknown-cluster"),
    _command("brokerStatus -c DefaultCluster", "of-cluster", masks=BROKER_NUMBERS),
    _command("brokerStatus -c nowhere", "unknown-cluster"),
    _command("brokerStatus -b 127.0.0.1:1", "unreachable"),
    _command("getBrokerEpoch -b nowhere", "unknown-broker"),
    _command("brokerStatus -b {broker}", masks=BROKER_NUMBERS),
    _command("updateBrokerConfig -b {broker} -k fileReservedTime -v 48"),
    _command("updateBrokerConfig -c DefaultCluster -k deleteWhen -v 05", "on-cluster"),
    _command("updateBrokerConfig -b {broker} -k brokerConfigPath -v x", "refused"),
    _command("updateBrokerConfig -c DefaultCluster -a true -k deleteWhen -v 06", "on-all"),
    _command("updateBrokerConfig -k deleteWhen -v 06", "nowhere"),
    _command("updateBrokerConfig -c nowhere -k deleteWhen -v 06", "unknown-cluster"),
    _command("getBrokerConfig -c nowhere", "unknown-cluster"),
    _command(
        "getBrokerConfig -b {broker}",
        masks=PATHS,
        drops=[NO_REPLICATION],
        is_ordered=False,
        shared="threads, POP, RocksDB and other parts of Java's broker have settings of their own",
    ),
    _command("cleanExpiredCQ -b {broker}"),
    _command("cleanUnusedTopic -b {broker}"),
    _command("deleteExpiredCommitLog -b {broker}"),
    _command("cleanExpiredCQ -c DefaultCluster", "on-cluster"),
    _command("cleanUnusedTopic", "everywhere"),
    _command("deleteExpiredCommitLog -c DefaultCluster", "on-cluster"),
    _command("haStatus -c DefaultCluster", "of-cluster"),
    _command("haStatus", "nowhere"),
    _command("getBrokerEpoch -c DefaultCluster", "of-cluster"),
    _command("switchTimerEngine -b {broker} -e X", "unknown-engine"),
    _command("setCommitLogReadAheadMode -b {broker} -m 2", "unknown-mode"),
    _command("haStatus -b {broker}"),
    _command("getBrokerEpoch -b broker-a"),
    _command("resetMasterFlushOffset -b {broker} -o 0"),
    _command("setCommitLogReadAheadMode -b {broker} -m 1", refused=COLD),
    _command("switchTimerEngine -b {broker} -e F", refused="there is no timer wheel"),
    _command("dumpCompactionLog -f {folder}/none", "no-file"),
    _command(
        "dumpCompactionLog -f {log}",
        drops=[TRACE],
        differs="Java's tool takes the text of a message for a format and fails at names with a %",
    ),
    # Name servers.
    _command(
        "getNamesrvConfig",
        masks=PATHS,
        is_ordered=False,
        shared="threads and buffers of Java's name server have settings of their own",
    ),
    _command("updateNamesrvConfig -k enableTopicList -v true"),
    _command("updateNamesrvConfig -k kvConfigPath -v x", "refused"),
    _command("updateKvConfig -s space -k colour -v red"),
    _command("deleteKvConfig -s space -k colour"),
    _command("deleteKvConfig -s space -k colour", "again"),
    _command("wipeWritePerm -b broker-a", masks=PERM_COUNT),
    _command(f"topicRoute -t {TOPIC}", "wiped"),
    _command("addWritePerm -b broker-a", masks=PERM_COUNT),
    _command("wipeWritePerm -b nobody", "unknown-broker"),
    # Exports.
    _command("exportMetadata -c DefaultCluster -f {folder}", exports="metadata.json"),
    _command(
        "exportMetadata -c DefaultCluster -t -s -f {folder}",
        "all-topics-of-cluster",
        exports="topic.json",
        drops=[RETRY_QUEUES],
        is_ordered=False,
    ),
    _command("exportMetadata -f {folder}", "nowhere"),
    _command(
        "exportMetadata -b {broker} -t -f {folder}", "topics", exports="topic.json", masks=VERSIONS
    ),
    _command(
        "exportMetadata -b {broker} -g -f {folder}",
        "groups",
        exports="subscriptionGroup.json",
        masks=VERSIONS,
    ),
    _command(
        "exportConfigs -c DefaultCluster -f {folder}", exports="configs.json", drops=[NO_TLS_CLIENT]
    ),
    _command(
        "exportMetrics -c DefaultCluster -f {folder}",
        exports="metrics.json",
        masks=(*RATES, (r'OneDay(In|Out)Num":\d+', r'OneDay\1Num":<n>')),
        drops=[CPUS],
    ),
    _command("exportPopRecord -b {broker}", refused=POP),
    # The end.
    _command(f"deleteSubGroup -b {{broker}} -g {COPY} -r true"),
    _command("deleteSubGroup -b {broker} -g nobody", "unknown-group"),
    _command("deleteSubGroup -c DefaultCluster -g listed_b", "on-cluster"),
    _command("deleteSubGroup -g listed_a", "nowhere"),
    _command("deleteTopic -c DefaultCluster -t ListedA"),
    _command("deleteTopic -c DefaultCluster -t Nowhere", "unknown-topic"),
    _command("deleteTopic -c DefaultCluster -t TBW102", "system-topic"),
    _command("deleteTopic -c nowhere -t Ordered", "unknown-cluster"),
    _command("topicList", "at-the-end", drops=[TIMER], is_ordered=False),
)

COMMANDS: Sequence[Command] = tuple(step for step in STEPS if isinstance(step, Command))

CHANGING = frozenset(
    {
        "addWritePerm",
        "checkMsgSendRT",
        "cleanExpiredCQ",
        "cleanUnusedTopic",
        "cloneGroupOffset",
        "clusterRT",
        "deleteExpiredCommitLog",
        "deleteKvConfig",
        "deleteSubGroup",
        "deleteTopic",
        "resetMasterFlushOffset",
        "resetOffsetByTime",
        "sendMessage",
        "sendMsgStatus",
        "setCommitLogReadAheadMode",
        "setConsumeMode",
        "skipAccumulatedMessage",
        "switchTimerEngine",
        "updateBrokerConfig",
        "updateKvConfig",
        "updateNamesrvConfig",
        "updateOrderConf",
        "updateSubGroup",
        "updateSubGroupList",
        "updateTopic",
        "updateTopicList",
        "updateTopicPerm",
        "wipeWritePerm",
    }
)
"""Commands that change something."""
