package roquet.agent;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Predicate;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** {@code push} and {@code lite}: consumers that print every message as an event. */
final class Consumers {
    private static final int POLL_MS = 200;
    private static final int OFFSET_PERIOD_MS = 500;
    private static final int LISTENERS_END_MS = 30_000;

    private Consumers() {
    }

    /**
     * {@code listener} is concurrent or orderly, {@code model} CLUSTERING or BROADCASTING. With
     * {@code failures} every message whose body begins with {@code failing} fails so often, to be
     * tried again after the shortest delay, but not more often than {@code maxReconsumeTimes}. The
     * listener is called by so many {@code threads}. {@code allocate} is how the group shares queues.
     */
    static AutoCloseable push(Parameters parameters, Output output) throws Exception {
        String handle = parameters.text("handle");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            parameters.text("group"), parameters.flag("trace"), parameters.text("traceTopic", null));
        Commands.configure(consumer, parameters);
        consumer.setPersistConsumerOffsetInterval(OFFSET_PERIOD_MS);
        // Otherwise a consumer that is shut down does not commit what its listener has just taken.
        consumer.setAwaitTerminationMillisWhenShutdown(LISTENERS_END_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            parameters.text("from", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET.name())));
        // The enum's package differs between 4.x and 5.x.
        consumer.setMessageModel(Enum.valueOf(
            consumer.getMessageModel().getDeclaringClass(), parameters.text("model", "CLUSTERING")));
        consumer.setAllocateMessageQueueStrategy(strategy(parameters.text("allocate", "AVG")));
        consumer.subscribe(parameters.text("topic"), selector(parameters));
        int threads = (int) parameters.number("threads", consumer.getConsumeThreadMin());
        consumer.setConsumeThreadMin(threads);
        consumer.setConsumeThreadMax(threads);
        consumer.setMaxReconsumeTimes((int) parameters.number("maxReconsumeTimes", -1));
        String listener = parameters.text("listener", "concurrent");
        long failures = parameters.number("failures", 0);
        String failing = parameters.text("failing", "");
        Predicate<MessageExt> isTaken = message -> message.getReconsumeTimes() >= failures
            || !new String(message.getBody(), StandardCharsets.UTF_8).startsWith(failing);
        if (listener.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                output.printMessages(handle, messages);
                return messages.stream().allMatch(isTaken)
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                output.printMessages(handle, messages);
                context.setDelayLevelWhenNextConsume(1);
                return messages.stream().allMatch(isTaken)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        try {
            consumer.start();
        } catch (Exception refused) {
            // A consumer whose expression is refused runs all the same, until it is shut down.
            consumer.shutdown();
            throw refused;
        }
        return consumer::shutdown;
    }

    private static AllocateMessageQueueStrategy strategy(String name) {
        return switch (name) {
            case "AVG" -> new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE" -> new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH" -> new AllocateMessageQueueConsistentHash();
            default -> throw new IllegalArgumentException("unknown strategy: " + name);
        };
    }

    /** {@code expression}, of the type {@code expressionType}: TAG or SQL92. */
    private static MessageSelector selector(Parameters parameters) {
        String expression = parameters.text("expression", "*");
        return parameters.text("expressionType", ExpressionType.TAG).equals(ExpressionType.SQL92)
            ? MessageSelector.bySql(expression)
            : MessageSelector.byTag(expression);
    }

    /**
     * A lite pull consumer and its thread. With {@code seek}, a table of queue ids and offsets, it
     * assigns itself those queues of {@code broker}; without, it subscribes.
     */
    static AutoCloseable lite(Parameters parameters, Output output) throws Exception {
        String handle = parameters.text("handle");
        String topic = parameters.text("topic");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(parameters.text("group"));
        Commands.configure(consumer, parameters);
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        Map<String, String> seek = parameters.textTable("seek");
        if (seek.isEmpty()) {
            consumer.subscribe(topic, selector(parameters));
        }
        consumer.start();
        if (!seek.isEmpty()) {
            List<MessageQueue> queues = seek.keySet().stream()
                .map(id -> new MessageQueue(topic, parameters.text("broker"), Integer.parseInt(id)))
                .toList();
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                consumer.seek(queue, Long.parseLong(seek.get(Integer.toString(queue.getQueueId()))));
            }
        }
        AtomicBoolean isStopping = new AtomicBoolean();
        Thread thread = new Thread(() -> {
            while (!isStopping.get()) {
                pollOnce(consumer, handle, output);
            }
        }, "lite-" + handle);
        thread.start();
        return () -> {
            isStopping.set(true);
            // What was printed is committed before the consumer is shut down.
            thread.join();
            consumer.shutdown();
        };
    }

    private static void pollOnce(DefaultLitePullConsumer consumer, String handle, Output output) {
        List<MessageExt> messages = consumer.poll(POLL_MS);
        if (!messages.isEmpty()) {
            output.printMessages(handle, messages);
            consumer.commitSync();
        }
    }
}
