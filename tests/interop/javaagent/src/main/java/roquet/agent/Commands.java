package roquet.agent;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * The table of commands. What a command starts lives under the {@code handle} that it was given
 * until {@code stop}; each has its own connections, as programs of their own would.
 */
final class Commands {
    // What a client does every half a minute would make tests of restarts last as long.
    private static final int PERIOD_MS = 1_000;
    private static final AtomicInteger INSTANCE = new AtomicInteger();

    private final Output output;
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Load> loads = new ConcurrentHashMap<>();
    private final Map<String, AutoCloseable> consumers = new ConcurrentHashMap<>();

    Commands(Output output) {
        this.output = output;
    }

    Object run(Parameters parameters) throws Exception {
        String command = parameters.text("do");
        return switch (command) {
            case "producer" -> startProducer(parameters);
            case "transactional" -> keep(parameters, Transactions.start(parameters, output));
            case "send" -> Sends.send(producer(parameters), parameters);
            case "transact" -> Transactions.send(producer(parameters), parameters);
            case "request" -> Requests.request(producer(parameters), parameters);
            case "reply" -> Requests.reply(producer(parameters), parameters);
            case "load" -> startLoad(parameters);
            case "load-stop" -> loads.remove(parameters.text("handle")).stop();
            case "push" -> keep(parameters, Consumers.push(parameters, output));
            case "lite" -> keep(parameters, Consumers.lite(parameters, output));
            case "stop" -> stop(parameters.text("handle"));
            case "query" -> Lookups.query(producer(parameters), parameters);
            case "view" -> Lookups.view(producer(parameters), parameters);
            case "offsets" -> Lookups.offsets(producer(parameters), parameters);
            case "route" -> Lookups.route(producer(parameters), parameters);
            case "create-topic" -> Lookups.createTopic(producer(parameters), parameters);
            default -> throw new IllegalArgumentException("unknown command: " + command);
        };
    }

    static void configure(ClientConfig client, Parameters parameters) {
        client.setNamesrvAddr(parameters.text("namesrv"));
        long pid = ProcessHandle.current().pid();
        client.setInstanceName(parameters.text(
            "instance", "agent-" + pid + "-" + INSTANCE.incrementAndGet()));
        client.setVipChannelEnabled(parameters.flag("vip"));
        client.setPollNameServerInterval(PERIOD_MS);
        client.setHeartbeatBrokerInterval(PERIOD_MS);
    }

    private Object startProducer(Parameters parameters) throws Exception {
        // A producer of 5.x looks at it when it is made, one of 4.x knows only this.
        System.setProperty("rocketmq.message.compressType", parameters.text("compress", "ZLIB"));
        DefaultMQProducer producer = new DefaultMQProducer(
            parameters.text("group"), parameters.flag("trace"), parameters.text("traceTopic", null));
        configure(producer, parameters);
        // The load repeats a failed message itself, to know how often; a timeout is then a failure.
        producer.setRetryTimesWhenSendFailed((int) parameters.number("retries", 2));
        producer.setSendMsgTimeout((int) parameters.number("timeoutMs", 30_000));
        producer.start();
        return keep(parameters, producer);
    }

    private Object startLoad(Parameters parameters) {
        Load load = new Load(producer(parameters), parameters, output);
        loads.put(parameters.text("handle"), load);
        load.start();
        return Map.of();
    }

    private DefaultMQProducer producer(Parameters parameters) {
        DefaultMQProducer producer = producers.get(parameters.text("producer"));
        if (producer == null) {
            throw new IllegalArgumentException("no such producer: " + parameters.text("producer"));
        }
        return producer;
    }

    private Object keep(Parameters parameters, DefaultMQProducer producer) {
        producers.put(parameters.text("handle"), producer);
        return Map.of();
    }

    private Object keep(Parameters parameters, AutoCloseable consumer) {
        consumers.put(parameters.text("handle"), consumer);
        return Map.of();
    }

    private Object stop(String handle) throws Exception {
        DefaultMQProducer producer = producers.remove(handle);
        if (producer != null) {
            producer.shutdown();
            return Map.of();
        }
        consumers.remove(handle).close();
        return Map.of();
    }
}
