package roquet.agent;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * {@code request} and {@code reply}: a message that waits for its answer, and the answer.
 *
 * <p>Who asks waits within the command. Who answers is told the properties of the request, as a
 * consumer printed them.
 */
final class Requests {
    private static final long CALLBACK_GRACE_MS = 20_000;

    private Requests() {
    }

    static Object request(DefaultMQProducer producer, Parameters parameters) throws Exception {
        Message message = Sends.message(parameters.text("topic"), parameters);
        long timeoutMs = parameters.number("timeoutMs");
        Message reply = switch (parameters.text("mode")) {
            case "sync" -> producer.request(message, timeoutMs);
            case "selector" -> producer.request(
                message, (queues, each, argument) -> queues.get(queues.size() - 1), null, timeoutMs);
            case "async" -> requestAsync(producer, message, timeoutMs);
            default -> throw new IllegalArgumentException("unknown mode of a request");
        };
        return Map.of(
            "body", new String(reply.getBody(), StandardCharsets.UTF_8),
            "topic", reply.getTopic(),
            "properties", reply.getProperties());
    }

    private static Message requestAsync(
        DefaultMQProducer producer, Message message, long timeoutMs) throws Exception {
        CompletableFuture<Message> answer = new CompletableFuture<>();
        producer.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                // The library also calls, with nothing, when the request itself was sent.
                if (reply != null) {
                    answer.complete(reply);
                }
            }

            @Override
            public void onException(Throwable error) {
                answer.completeExceptionally(error);
            }
        }, timeoutMs);
        try {
            return answer.get(timeoutMs + CALLBACK_GRACE_MS, TimeUnit.MILLISECONDS);
        } catch (ExecutionException error) {
            throw new IllegalStateException(error.getCause());
        }
    }

    static Object reply(DefaultMQProducer producer, Parameters parameters) throws Exception {
        MessageExt request = new MessageExt();
        parameters.textTable("properties").forEach(
            (name, value) -> MessageAccessor.putProperty(request, name, value));
        byte[] body = parameters.text("body").getBytes(StandardCharsets.UTF_8);
        try {
            return Output.describe(producer.send(MessageUtil.createReplyMessage(request, body)));
        } catch (MQClientException error) {
            // What the broker said is the cause.
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }
}
