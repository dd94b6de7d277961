package roquet.agent;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Questions about messages, queues and routes. */
final class Lookups {
    private static final int QUERY_COUNT = 64;
    private static final int TIMEOUT_MS = 30_000;

    private Lookups() {
    }

    /** {@code topic}, {@code key}: what the index finds. */
    static Object query(DefaultMQProducer producer, Parameters parameters) throws Exception {
        List<Object> found = new ArrayList<>();
        for (MessageExt message : producer.queryMessage(
            parameters.text("topic"), parameters.text("key"), QUERY_COUNT, 0, Long.MAX_VALUE)
            .getMessageList()) {
            found.add(Output.describe(message));
        }
        return Map.of("messages", found);
    }

    /** {@code topic}, {@code msgId}: one message by where it lies, or by the id of its producer. */
    static Object view(DefaultMQProducer producer, Parameters parameters) throws Exception {
        return Output.describe(
            producer.viewMessage(parameters.text("topic"), parameters.text("msgId")));
    }

    /** {@code topic}, {@code broker}, {@code queueId}, {@code timestamp}: of one queue. */
    static Object offsets(DefaultMQProducer producer, Parameters parameters) throws Exception {
        MessageQueue queue = new MessageQueue(
            parameters.text("topic"), parameters.text("broker"), (int) parameters.number("queueId"));
        producer.fetchPublishMessageQueues(queue.getTopic());
        return Map.of(
            "minOffset", producer.minOffset(queue),
            "maxOffset", producer.maxOffset(queue),
            "searchOffset", producer.searchOffset(queue, parameters.number("timestamp", 0)),
            "earliestTime", producer.earliestMsgStoreTime(queue));
    }

    /** {@code topic}: who serves it, asked of the name server now. */
    static Object route(DefaultMQProducer producer, Parameters parameters) throws Exception {
        var route = MQClientManager.getInstance().getOrCreateMQClientInstance(producer)
            .getMQClientAPIImpl().getTopicRouteInfoFromNameServer(parameters.text("topic"), TIMEOUT_MS);
        List<Object> queues = new ArrayList<>();
        for (var queue : route.getQueueDatas()) {
            queues.add(Map.of(
                "broker", queue.getBrokerName(),
                "read", queue.getReadQueueNums(),
                "write", queue.getWriteQueueNums(),
                "perm", queue.getPerm()));
        }
        List<Object> brokers = new ArrayList<>();
        for (var broker : route.getBrokerDatas()) {
            List<Object> addresses = new ArrayList<>();
            broker.getBrokerAddrs().forEach(
                (id, address) -> addresses.add(Map.of("id", id, "address", address)));
            brokers.add(Map.of(
                "cluster", broker.getCluster(),
                "name", broker.getBrokerName(),
                "addresses", addresses));
        }
        return Map.of("queues", queues, "brokers", brokers);
    }

    /** {@code topic}, {@code queueCount}: made by the client's own call, at every broker. */
    static Object createTopic(DefaultMQProducer producer, Parameters parameters) throws Exception {
        producer.getDefaultMQProducerImpl().createTopic(
            "TBW102", parameters.text("topic"), (int) parameters.number("queueCount"));
        return Map.of();
    }
}
