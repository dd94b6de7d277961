package roquet.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The commands. Every one takes {@code --namesrv host:port}, makes its own client and closes it, so
 * that no route of an earlier broker is remembered. Queues are named by {@code --broker} and
 * {@code --queues n} (ids 0 to n-1), never by the route, so that brokers sharing a name server do
 * not mix.
 */
@SuppressWarnings("deprecation") // The pull consumer is the one that reads a queue by offset.
final class Commands {
    private static final int PULL_BATCH = 32;
    private static final int QUERY_BATCH = 64;
    private static final AtomicInteger INSTANCE = new AtomicInteger();

    private final Consumer<Map<String, Object>> output;

    Commands(Consumer<Map<String, Object>> output) {
        this.output = output;
    }

    void run(List<String> words) throws Exception {
        Arguments arguments = new Arguments(words.subList(1, words.size()));
        switch (words.get(0)) {
            case "wait" -> waitForBroker(arguments);
            case "offsets" -> offsets(arguments);
            case "consume" -> consume(arguments);
            case "produce" -> produce(arguments);
            case "query" -> query(arguments);
            case "mqadmin" -> output.accept(AdminTool.run(arguments));
            case "clone" -> cloneOffsets(arguments);
            case "client-offsets" -> clientOffsets(arguments);
            case "resume-check" -> resumeCheck(arguments);
            default -> throw new IllegalArgumentException("unknown command: " + words.get(0));
        }
    }

    /**
     * {@code --broker --address --timeout-ms}: returns once the name server knows the broker.
     *
     * <p>A broker whose first registration finds the name server's connection not yet open tries
     * again only after ten seconds. Setting its permission, to what it is, makes it register now.
     */
    private void waitForBroker(Arguments arguments) throws Exception {
        String namesrv = arguments.text("namesrv");
        String broker = arguments.text("broker");
        String address = arguments.text("address");
        long timeoutMs = arguments.number("timeout-ms", 30_000);
        arguments.finish();
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        Properties permission = new Properties();
        permission.setProperty("brokerPermission", "6");
        DefaultMQAdminExt admin = new DefaultMQAdminExt("interop_admin");
        configure(admin, namesrv);
        admin.start();
        try {
            while (true) {
                BrokerData data =
                    admin.examineBrokerClusterInfo().getBrokerAddrTable().get(broker);
                if (data != null && data.selectBrokerAddr() != null) {
                    output.accept(Map.of("broker", broker, "address", data.selectBrokerAddr()));
                    return;
                }
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not registered: " + broker);
                }
                admin.updateBrokerConfig(address, permission);
                TimeUnit.MILLISECONDS.sleep(100);
            }
        } finally {
            close(admin::shutdown);
        }
    }

    /** {@code --topics a,b --timestamp ms}: least and next offset; with a time, its offset too. */
    private void offsets(Arguments arguments) throws Exception {
        String namesrv = arguments.text("namesrv");
        List<MessageQueue> queues = queues(arguments);
        long timestamp = arguments.number("timestamp", -1);
        arguments.finish();
        DefaultMQPullConsumer consumer = startConsumer(namesrv);
        try {
            for (MessageQueue queue : queues) {
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("topic", queue.getTopic());
                line.put("queueId", queue.getQueueId());
                line.put("minOffset", consumer.minOffset(queue));
                line.put("maxOffset", consumer.maxOffset(queue));
                if (timestamp >= 0) {
                    line.put("searchOffset", consumer.searchOffset(queue, timestamp));
                }
                output.accept(line);
            }
        } finally {
            close(consumer::shutdown);
        }
    }

    /** {@code --topics a,b --expression tags}: every message from the least to the next offset. */
    private void consume(Arguments arguments) throws Exception {
        String namesrv = arguments.text("namesrv");
        List<MessageQueue> queues = queues(arguments);
        String expression = arguments.text("expression", "*");
        arguments.finish();
        DefaultMQPullConsumer consumer = startConsumer(namesrv);
        try {
            for (MessageQueue queue : queues) {
                consumeQueue(consumer, queue, expression);
            }
        } finally {
            close(consumer::shutdown);
        }
    }

    private void consumeQueue(DefaultMQPullConsumer consumer, MessageQueue queue, String expression)
        throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, expression, offset, PULL_BATCH);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    output.accept(Json.message(message));
                }
            } else if (result.getPullStatus() != PullStatus.NO_MATCHED_MSG) {
                throw new IllegalStateException(queue + " at " + offset + " of " + end + ": " + result);
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException("no progress: " + queue + " at " + offset);
            }
            offset = result.getNextBeginOffset();
        }
    }

    /**
     * {@code --topics t --count n --size bytes --seed n --tags a,b --window n --until-failure true}:
     * one message to each queue in turn, so that message i of the call goes to queue i mod n. Key of
     * message i: {@code <seed>-k<i>} and the shared {@code <seed>-all}. Every acknowledgement is
     * printed as it comes, at most {@code window} messages wait for theirs. With until-failure the
     * first failed send ends the command well.
     */
    private void produce(Arguments arguments) throws Exception {
        String namesrv = arguments.text("namesrv");
        List<MessageQueue> queues = queues(arguments);
        long count = arguments.number("count", 1);
        int size = (int) arguments.number("size", 100);
        long seed = arguments.number("seed", 1);
        List<String> tags = arguments.list("tags");
        int window = (int) arguments.number("window", 1);
        boolean untilFailure = Boolean.parseBoolean(arguments.text("until-failure", "false"));
        arguments.finish();
        DefaultMQProducer producer = new DefaultMQProducer("interop_producer");
        configure(producer, namesrv);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        SendWindow inFlight = new SendWindow(window, output);
        Random random = new Random(seed);
        try {
            for (int i = 0; i < count && inFlight.acquire(); i++) {
                MessageQueue queue = queues.get(i % queues.size());
                Message message = makeMessage(queue.getTopic(), i, seed, size, random);
                message.setTags(tags.get(i % tags.size()));
                producer.send(message, queue, inFlight.callback(message));
            }
            inFlight.finish(untilFailure);
        } finally {
            close(producer::shutdown);
        }
    }

    private static Message makeMessage(String topic, int i, long seed, int size, Random random) {
        String text = topic + "/" + i + "/雪/";
        byte[] head = text.getBytes(StandardCharsets.UTF_8);
        byte[] body = new byte[head.length + size];
        System.arraycopy(head, 0, body, 0, head.length);
        for (int k = head.length; k < body.length; k++) {
            body[k] = (byte) ('a' + random.nextInt(8));
        }
        Message message = new Message(topic, body);
        message.setKeys(List.of(seed + "-k" + i, seed + "-all"));
        message.setFlag(i);
        message.putUserProperty("seq", Integer.toString(i));
        message.putUserProperty("note", "žluť → 雪");
        return message;
    }

    /**
     * {@code --topic t --keys a,b --unique true}: messages found by each key, with the key as
     * {@code queryKey}; unique keys are those that producers give.
     */
    private void query(Arguments arguments) throws Exception {
        String namesrv = arguments.text("namesrv");
        String topic = arguments.text("topic");
        List<String> keys = arguments.list("keys");
        boolean unique = Boolean.parseBoolean(arguments.text("unique"));
        arguments.finish();
        DefaultMQAdminExt admin = new DefaultMQAdminExt("interop_admin");
        configure(admin, namesrv);
        admin.start();
        try {
            for (String key : keys) {
                for (MessageExt message : queryKey(admin, topic, key, unique)) {
                    Map<String, Object> line = Json.message(message);
                    line.put("queryKey", key);
                    output.accept(line);
                }
            }
        } finally {
            close(admin::shutdown);
        }
    }

    private static List<MessageExt> queryKey(
        DefaultMQAdminExt admin, String topic, String key, boolean unique) throws Exception {
        try {
            QueryResult result = unique
                ? admin.queryMessageByUniqKey(null, topic, key, QUERY_BATCH, 0, Long.MAX_VALUE)
                : admin.queryMessage(topic, key, QUERY_BATCH, 0, Long.MAX_VALUE);
            return result.getMessageList();
        } catch (MQClientException e) {
            if (e.getResponseCode() == ResponseCode.NO_MESSAGE) {
                return List.of();
            }
            throw e;
        }
    }

    /** {@code --source --target --topic}: lets a group go on where another one is. */
    private void cloneOffsets(Arguments arguments) throws Exception {
        String namesrv = arguments.text("namesrv");
        String source = arguments.text("source");
        String target = arguments.text("target");
        String topic = arguments.text("topic");
        arguments.finish();
        DefaultMQAdminExt admin = new DefaultMQAdminExt("interop_admin");
        configure(admin, namesrv);
        admin.start();
        try {
            admin.cloneGroupOffset(source, target, topic, false);
        } finally {
            close(admin::shutdown);
        }
    }

    /** {@code --group --topic}: how far the clients of a group are, in their own words. */
    private void clientOffsets(Arguments arguments) throws Exception {
        String namesrv = arguments.text("namesrv");
        String group = arguments.text("group");
        String topic = arguments.text("topic");
        arguments.finish();
        DefaultMQAdminExt admin = new DefaultMQAdminExt("interop_admin");
        configure(admin, namesrv);
        admin.start();
        try {
            admin.getConsumeStatus(topic, group, "").forEach((client, offsets) -> offsets.forEach(
                (queue, offset) -> output.accept(Map.of(
                    "client", client, "queueId", queue.getQueueId(), "offset", offset))));
        } finally {
            close(admin::shutdown);
        }
    }

    /** {@code --topic --id}: has a broker ask again about a transaction that it gave up. */
    private void resumeCheck(Arguments arguments) throws Exception {
        String namesrv = arguments.text("namesrv");
        String topic = arguments.text("topic");
        String id = arguments.text("id");
        arguments.finish();
        DefaultMQAdminExt admin = new DefaultMQAdminExt("interop_admin");
        configure(admin, namesrv);
        admin.start();
        try {
            output.accept(Map.of("resumed", admin.resumeCheckHalfMessage(topic, id)));
        } finally {
            close(admin::shutdown);
        }
    }

    private static List<MessageQueue> queues(Arguments arguments) {
        String broker = arguments.text("broker");
        long count = arguments.number("queues", 1);
        List<MessageQueue> queues = new ArrayList<>();
        for (String topic : arguments.list("topics")) {
            for (int queueId = 0; queueId < count; queueId++) {
                queues.add(new MessageQueue(topic, broker, queueId));
            }
        }
        return queues;
    }

    private static DefaultMQPullConsumer startConsumer(String namesrv) throws MQClientException {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop_consumer");
        configure(consumer, namesrv);
        consumer.start();
        return consumer;
    }

    /** Closing a client waits three seconds for one of its threads: let another thread wait. */
    private static void close(Runnable shutdown) {
        Thread thread = new Thread(shutdown, "closer");
        thread.setDaemon(true);
        thread.start();
    }

    private static void configure(ClientConfig client, String namesrv) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName("interop-" + INSTANCE.incrementAndGet());
    }
}
