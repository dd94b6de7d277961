package roquet.interop;

import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Keeps at most {@code size} messages without an answer, and remembers the first failure. */
final class SendWindow {
    private static final long ANSWER_TIMEOUT_SECONDS = 20;

    private final int size;
    private final Semaphore free;
    private final Consumer<Map<String, Object>> output;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    SendWindow(int size, Consumer<Map<String, Object>> output) {
        this.size = size;
        this.free = new Semaphore(size);
        this.output = output;
    }

    /** Waits for room; false once a message has failed. */
    boolean acquire() throws InterruptedException {
        await(1);
        if (failure.get() != null) {
            free.release();
            return false;
        }
        return true;
    }

    /** Waits for all answers; a failure is printed if it was expected and thrown if not. */
    void finish(boolean failureExpected) throws InterruptedException {
        await(size);
        Throwable error = failure.get();
        if (error != null && !failureExpected) {
            throw new IllegalStateException("a message failed", error);
        }
        if (error != null) {
            print(Map.of("failed", error.toString()));
        }
    }

    SendCallback callback(Message message) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                print(Json.sent(message, result));
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                failure.compareAndSet(null, error);
                free.release();
            }
        };
    }

    private void await(int permits) throws InterruptedException {
        if (!free.tryAcquire(permits, ANSWER_TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no answer within " + ANSWER_TIMEOUT_SECONDS + " s");
        }
    }

    private synchronized void print(Map<String, Object> line) {
        output.accept(line);
    }
}
