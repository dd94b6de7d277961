package roquet.bench;

import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Threads that send one message after the other with one DefaultMQProducer; prints one line of JSON with what
 * they did in the measured time. Arguments: name servers, topic, threads, bytes of a body, seconds before the
 * measured time, seconds of it.
 */
public final class Sends {
    private static final int LATENCIES_MAX = 1 << 20;

    private volatile boolean measuring;
    private volatile boolean stopping;
    private final AtomicLong failures = new AtomicLong();
    private final AtomicLong sent = new AtomicLong();
    private final List<long[]> latencies = new ArrayList<>();

    private Sends() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream results = System.out;
        System.setOut(System.err); // the client's own words are no results
        DefaultMQProducer producer = new DefaultMQProducer("bench_group");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        results.println(new Sends().run(producer, arguments));
        producer.shutdown();
        System.exit(0);
    }

    private String run(DefaultMQProducer producer, String[] arguments) throws InterruptedException {
        int count = Integer.parseInt(arguments[2]);
        byte[] body = new byte[Integer.parseInt(arguments[3])];
        Arrays.fill(body, (byte) 'x');
        List<Thread> threads = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            Thread thread = new Thread(() -> send(producer, arguments[1], body), "send-" + index);
            threads.add(thread);
            thread.start();
        }
        sleep(arguments[4]);
        long began = System.nanoTime();
        long cpuBegan = cpuNanos();
        measuring = true;
        sleep(arguments[5]);
        measuring = false;
        double spent = System.nanoTime() - began;
        double cpu = cpuNanos() - cpuBegan;
        stopping = true;
        for (Thread thread : threads) {
            thread.join();
        }
        long[] sorted = latencies.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        return String.format(
            Locale.ROOT,
            "{\"msgs_per_s\":%.1f,\"client_cpu_us_per_msg\":%.3f,\"p50_us\":%d,\"p99_us\":%d,\"failed\":%d}",
            sent.get() / (spent / 1e9),
            cpu / 1e3 / Math.max(sent.get(), 1),
            percentile(sorted, 0.50),
            percentile(sorted, 0.99),
            failures.get());
    }

    private void send(DefaultMQProducer producer, String topic, byte[] body) {
        long[] seen = new long[LATENCIES_MAX];
        int count = 0;
        while (!stopping) {
            long began = System.nanoTime();
            try {
                Message message = new Message(topic, "TagA", "order-4711", body);
                if (producer.send(message).getSendStatus() != SendStatus.SEND_OK) {
                    failures.incrementAndGet();
                    continue;
                }
            } catch (Exception e) {
                failures.incrementAndGet();
                continue;
            }
            if (measuring) {
                sent.incrementAndGet();
                if (count < LATENCIES_MAX) {
                    seen[count++] = (System.nanoTime() - began) / 1000;
                }
            }
        }
        synchronized (latencies) {
            latencies.add(Arrays.copyOf(seen, count));
        }
    }

    private static long percentile(long[] sorted, double part) {
        return sorted.length == 0 ? -1 : sorted[(int) ((sorted.length - 1) * part)];
    }

    private static void sleep(String seconds) throws InterruptedException {
        TimeUnit.MILLISECONDS.sleep((long) (Double.parseDouble(seconds) * 1000));
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }
}
