package roquet.agent;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * {@code send}: messages to one topic in one of the ways that a producer has. Answers the results in
 * the order of the messages; a batch has one result, a one-way message none.
 */
final class Sends {
    private static final long ANSWER_TIMEOUT_SECONDS = 60;

    private Sends() {
    }

    static Object send(DefaultMQProducer producer, Parameters parameters) throws Exception {
        String topic = parameters.text("topic");
        String mode = parameters.text("mode");
        List<Parameters> items = parameters.objects("messages");
        List<Message> messages = new ArrayList<>();
        items.forEach(item -> messages.add(message(topic, item)));
        List<Object> results = new ArrayList<>();
        switch (mode) {
            case "sync" -> {
                for (Message message : messages) {
                    results.add(Output.describe(producer.send(message)));
                }
            }
            case "async" -> results.addAll(sendAsync(producer, messages));
            case "oneway" -> {
                for (Message message : messages) {
                    producer.sendOneway(message);
                }
            }
            case "batch" -> results.add(Output.describe(producer.send(messages)));
            case "ordered" -> {
                for (int i = 0; i < messages.size(); i++) {
                    results.add(Output.describe(
                        producer.send(messages.get(i), Sends::select, items.get(i).text("order"))));
                }
            }
            case "hashed" -> {
                SelectMessageQueueByHash selector = new SelectMessageQueueByHash();
                for (int i = 0; i < messages.size(); i++) {
                    results.add(Output.describe(
                        producer.send(messages.get(i), selector, items.get(i).text("order"))));
                }
            }
            case "queue" -> {
                for (int i = 0; i < messages.size(); i++) {
                    MessageQueue queue = new MessageQueue(
                        topic, items.get(i).text("broker"), (int) items.get(i).number("queueId"));
                    results.add(Output.describe(producer.send(messages.get(i), queue)));
                }
            }
            default -> throw new IllegalArgumentException("unknown mode: " + mode);
        }
        return Map.of("results", results);
    }

    private static List<Object> sendAsync(DefaultMQProducer producer, List<Message> messages)
        throws Exception {
        List<CompletableFuture<SendResult>> futures = new ArrayList<>();
        for (Message message : messages) {
            CompletableFuture<SendResult> future = new CompletableFuture<>();
            futures.add(future);
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    future.complete(result);
                }

                @Override
                public void onException(Throwable error) {
                    future.completeExceptionally(error);
                }
            });
        }
        List<Object> results = new ArrayList<>();
        for (CompletableFuture<SendResult> future : futures) {
            results.add(Output.describe(future.get(ANSWER_TIMEOUT_SECONDS, TimeUnit.SECONDS)));
        }
        return results;
    }

    private static MessageQueue select(List<MessageQueue> queues, Message message, Object order) {
        return queues.get(Math.floorMod(order.hashCode(), queues.size()));
    }

    static Message message(String topic, Parameters item) {
        Message message =
            new Message(topic, item.text("body").getBytes(StandardCharsets.UTF_8));
        if (item.has("tags")) {
            message.setTags(item.text("tags"));
        }
        if (item.has("keys")) {
            message.setKeys(item.texts("keys"));
        }
        item.textTable("properties").forEach(message::putUserProperty);
        if (item.has("delayLevel")) {
            message.setDelayTimeLevel((int) item.number("delayLevel"));
        }
        return message;
    }
}
