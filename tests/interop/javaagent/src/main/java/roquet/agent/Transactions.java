package roquet.agent;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * {@code transactional} and {@code transact}: messages whose end their properties foretell.
 *
 * <p>{@code local} is how the transaction ends when it is sent: commit, rollback, unknown, or throw
 * for a listener that fails. {@code checks} is what its producer says when the broker asks, a list
 * with commas whose last word holds for all further questions. A producer with {@code verdict} says
 * that instead. Every question is an event.
 */
final class Transactions {
    private static final String CHECK_TIMES = "TRANSACTION_CHECK_TIMES";

    private Transactions() {
    }

    static DefaultMQProducer start(Parameters parameters, Output output) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(parameters.text("group"));
        Commands.configure(producer, parameters);
        producer.setTransactionListener(
            new Foretold(parameters.text("handle"), output, parameters.text("verdict", "")));
        producer.start();
        return producer;
    }

    static Object send(DefaultMQProducer producer, Parameters parameters) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Parameters item : parameters.objects("messages")) {
            TransactionSendResult result = producer.sendMessageInTransaction(
                Sends.message(parameters.text("topic"), item), null);
            Map<String, Object> described = new LinkedHashMap<>(Output.describe(result));
            described.put("transactionId", result.getTransactionId());
            results.add(described);
        }
        return Map.of("results", results);
    }

    private record Foretold(String handle, Output output, String verdict)
        implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state(message.getProperty("local"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            output.print(Map.of(
                "event", "check", "handle", handle, "message", Output.describe(message)));
            if (!verdict.isEmpty()) {
                return state(verdict);
            }
            String[] verdicts = message.getProperty("checks").split(",");
            int times = Integer.parseInt(message.getProperty(CHECK_TIMES));
            return state(verdicts[Math.min(times, verdicts.length) - 1]);
        }

        private static LocalTransactionState state(String verdict) {
            return switch (verdict) {
                case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                case "unknown" -> LocalTransactionState.UNKNOW;
                default -> throw new IllegalStateException("told to fail by: " + verdict);
            };
        }
    }
}
