package roquet.filter;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BitsArray;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * What Apache RocketMQ makes of expressions: one JSON object a line of standard input, one answer a
 * line of standard output, until the input ends.
 *
 * <p>{@code {"expression": text, "properties": [object, ...]}} is answered with {@code "refused"},
 * the text that a client would be told, or with {@code "values"}, one for each set of properties:
 * true, false, null, or {@code "error"} where evaluating throws. {@code {"errorRate": f, "count": n,
 * "keys": [...]}} is answered with the numbers of a bloom filter, the bit positions of each key and
 * the bytes in which all of them are set.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject request = JSON.parseObject(line);
            JSONObject answer = request.containsKey("expression") ? filter(request) : bloom(request);
            out.println(answer.toString(com.alibaba.fastjson2.JSONWriter.Feature.WriteNulls));
        }
        out.flush();
    }

    private static JSONObject filter(JSONObject request) {
        JSONObject answer = new JSONObject();
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92)
                .compile(request.getString("expression"));
        } catch (Exception e) {
            answer.put("refused", e.getMessage());
            return answer;
        }
        JSONArray values = new JSONArray();
        for (Object properties : request.getJSONArray("properties")) {
            values.add(evaluate(expression, (JSONObject) properties));
        }
        answer.put("values", values);
        return answer;
    }

    private static Object evaluate(Expression expression, JSONObject properties) {
        Map<String, Object> copy = new HashMap<>(properties);
        try {
            return expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return copy.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return copy;
                }
            });
        } catch (Throwable e) {
            return "error";
        }
    }

    private static JSONObject bloom(JSONObject request) {
        BloomFilter filter =
            BloomFilter.createByFn(request.getIntValue("errorRate"), request.getIntValue("count"));
        BitsArray bits = BitsArray.create(filter.getM());
        JSONArray positions = new JSONArray();
        for (Object key : request.getJSONArray("keys")) {
            positions.add(filter.calcBitPositions((String) key));
            filter.hashTo((String) key, bits);
        }
        JSONArray bytes = new JSONArray();
        for (byte one : bits.bytes()) {
            bytes.add(one & 0xFF);
        }
        JSONObject answer = new JSONObject();
        answer.put("hashCount", filter.getK());
        answer.put("bitCount", filter.getM());
        answer.put("positions", positions);
        answer.put("bytes", bytes);
        return answer;
    }
}
