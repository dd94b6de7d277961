package roquet.agent;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * {@code load}: for each of {@code queues} one thread that sends {@code <name>/<queue>/<number>},
 * numbers from 0 on, to that queue, the next only after the one before was acknowledged; until
 * {@code load-stop}. A message that fails is sent again, so an unacknowledged one may be stored twice.
 * Every acknowledgement is an event.
 */
final class Load {
    private static final long STOP_TIMEOUT_SECONDS = 60;

    private final DefaultMQProducer producer;
    private final Output output;
    private final String handle;
    private final String topic;
    private final String broker;
    private final String name;
    private final long pauseMs;
    private final List<Thread> threads = new ArrayList<>();
    private volatile boolean stopping;
    private volatile Throwable failure;

    Load(DefaultMQProducer producer, Parameters parameters, Output output) {
        this.producer = producer;
        this.output = output;
        handle = parameters.text("handle");
        topic = parameters.text("topic");
        broker = parameters.text("broker");
        name = parameters.text("name");
        pauseMs = parameters.number("pauseMs");
        for (String queueId : parameters.texts("queues")) {
            MessageQueue queue = new MessageQueue(topic, broker, Integer.parseInt(queueId));
            threads.add(new Thread(() -> sendAll(queue), "load-" + handle + "-" + queueId));
        }
    }

    void start() {
        threads.forEach(Thread::start);
    }

    Object stop() throws InterruptedException {
        stopping = true;
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(STOP_TIMEOUT_SECONDS);
        for (Thread thread : threads) {
            thread.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())));
            if (thread.isAlive()) {
                throw new IllegalStateException(
                    thread.getName() + ": not acknowledged, the last failure was " + failure);
            }
        }
        return Map.of();
    }

    private void sendAll(MessageQueue queue) {
        try {
            for (int number = 0; !stopping; number++) {
                String body = name + "/" + queue.getQueueId() + "/" + number;
                int tries = 1;
                while (!sendOne(queue, body, number, tries)) {
                    tries++;
                }
                TimeUnit.MILLISECONDS.sleep(pauseMs);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean sendOne(MessageQueue queue, String body, int number, int tries)
        throws InterruptedException {
        try {
            Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
            SendResult result = producer.send(message, queue);
            if (result.getSendStatus() != SendStatus.SEND_OK) {
                throw new IllegalStateException(result.toString());
            }
            Map<String, Object> event = new LinkedHashMap<>(Output.describe(result));
            event.put("event", "ack");
            event.put("handle", handle);
            event.put("body", body);
            event.put("number", number);
            event.put("tries", tries);
            output.print(event);
            return true;
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            failure = e;
            TimeUnit.MILLISECONDS.sleep(50);
            return false;
        }
    }
}
