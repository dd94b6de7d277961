package roquet.interop;

import com.alibaba.fastjson2.JSON;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** What the client prints: one JSON object a line. */
final class Json {
    private Json() {
    }

    static String line(Map<String, ?> object) {
        return JSON.toJSONString(object);
    }

    static Map<String, Object> message(MessageExt message) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("topic", message.getTopic());
        out.put("queueId", message.getQueueId());
        out.put("queueOffset", message.getQueueOffset());
        out.put("physicalOffset", message.getCommitLogOffset());
        out.put("storeSize", message.getStoreSize());
        out.put("bodySha1", sha1(message.getBody()));
        out.put("bodyCrc", message.getBodyCRC());
        out.put("tags", message.getTags());
        out.put("keys", message.getKeys());
        out.put("properties", message.getProperties());
        out.put("flag", message.getFlag());
        out.put("sysFlag", message.getSysFlag());
        out.put("bornTimestamp", message.getBornTimestamp());
        out.put("storeTimestamp", message.getStoreTimestamp());
        out.put("bornHost", host(message.getBornHost()));
        out.put("storeHost", host(message.getStoreHost()));
        out.put("reconsumeTimes", message.getReconsumeTimes());
        out.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        out.put("msgId", message.getMsgId());
        if (message instanceof MessageClientExt clientMessage) {
            out.put("offsetMsgId", clientMessage.getOffsetMsgId());
        }
        return out;
    }

    static Map<String, Object> sent(Message message, SendResult result) {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("status", result.getSendStatus().name());
        out.put("topic", message.getTopic());
        out.put("queueId", result.getMessageQueue().getQueueId());
        out.put("queueOffset", result.getQueueOffset());
        out.put("msgId", result.getMsgId());
        out.put("offsetMsgId", result.getOffsetMsgId());
        out.put("bodySha1", sha1(message.getBody()));
        out.put("tags", message.getTags());
        out.put("keys", message.getKeys());
        out.put("flag", message.getFlag());
        out.put("properties", message.getProperties());
        return out;
    }

    static String sha1(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(bytes));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    private static String host(SocketAddress address) {
        InetSocketAddress inet = (InetSocketAddress) address;
        return inet.getAddress().getHostAddress() + ":" + inet.getPort();
    }
}
