package roquet.agent;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** The members of a JSON object; one that is asked for and missing is an error. */
final class Parameters {
    private final Map<?, ?> values;

    private Parameters(Map<?, ?> values) {
        this.values = values;
    }

    static Parameters parse(String line) {
        return new Parameters(RemotingSerializable.fromJson(line, Map.class));
    }

    boolean has(String name) {
        return values.get(name) != null;
    }

    String text(String name) {
        return value(name).toString();
    }

    String text(String name, String fallback) {
        return has(name) ? text(name) : fallback;
    }

    long number(String name) {
        return ((Number) value(name)).longValue();
    }

    long number(String name, long fallback) {
        return has(name) ? number(name) : fallback;
    }

    boolean flag(String name) {
        return has(name) && (Boolean) value(name);
    }

    List<Parameters> objects(String name) {
        List<Parameters> objects = new ArrayList<>();
        for (Object item : (List<?>) value(name)) {
            objects.add(new Parameters((Map<?, ?>) item));
        }
        return objects;
    }

    List<String> texts(String name) {
        List<String> texts = new ArrayList<>();
        for (Object item : (List<?>) value(name)) {
            texts.add(item.toString());
        }
        return texts;
    }

    Map<String, String> textTable(String name) {
        Map<String, String> table = new LinkedHashMap<>();
        if (has(name)) {
            ((Map<?, ?>) value(name)).forEach((key, text) -> table.put(key.toString(), text.toString()));
        }
        return table;
    }

    private Object value(String name) {
        Object value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing parameter " + name + " in " + values);
        }
        return value;
    }
}
