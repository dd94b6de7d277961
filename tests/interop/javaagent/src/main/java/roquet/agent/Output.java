package roquet.agent;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** What the agent prints: one JSON object a line, whole lines only. */
final class Output {
    private final PrintStream stream;

    Output(PrintStream stream) {
        this.stream = stream;
    }

    void print(Map<String, ?> object) {
        String line = RemotingSerializable.toJson(object, false);
        synchronized (this) {
            stream.println(line);
        }
    }

    void printMessages(String handle, List<MessageExt> messages) {
        List<Object> items = new ArrayList<>();
        messages.forEach(message -> items.add(describe(message)));
        print(Map.of("event", "messages", "handle", handle, "messages", items));
    }

    static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("topic", message.getTopic());
        out.put("queueId", message.getQueueId());
        out.put("queueOffset", message.getQueueOffset());
        out.put("physicalOffset", message.getCommitLogOffset());
        out.put("storeSize", message.getStoreSize());
        out.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        out.put("tags", message.getTags());
        out.put("keys", message.getKeys());
        out.put("properties", message.getProperties());
        out.put("reconsumeTimes", message.getReconsumeTimes());
        out.put("bornTimestamp", message.getBornTimestamp());
        out.put("storeTimestamp", message.getStoreTimestamp());
        out.put("msgId", message.getMsgId());
        if (message instanceof MessageClientExt clientMessage) {
            out.put("offsetMsgId", clientMessage.getOffsetMsgId());
        }
        return out;
    }

    static Map<String, Object> describe(SendResult result) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("status", result.getSendStatus().name());
        out.put("brokerName", result.getMessageQueue().getBrokerName());
        out.put("queueId", result.getMessageQueue().getQueueId());
        out.put("queueOffset", result.getQueueOffset());
        out.put("msgId", result.getMsgId());
        out.put("offsetMsgId", result.getOffsetMsgId());
        return out;
    }
}
