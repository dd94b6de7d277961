package roquet.interop;

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The {@code --name value} pairs of one command; an unknown or missing name is an error. */
final class Arguments {
    private final Map<String, String> values = new HashMap<>();

    Arguments(List<String> words) {
        if (words.size() % 2 != 0) {
            throw new IllegalArgumentException("arguments come as --name value pairs: " + words);
        }
        for (int i = 0; i < words.size(); i += 2) {
            if (!words.get(i).startsWith("--")) {
                throw new IllegalArgumentException("not an option name: " + words.get(i));
            }
            values.put(words.get(i).substring(2), words.get(i + 1));
        }
    }

    String text(String name) {
        String value = values.remove(name);
        if (value == null) {
            throw new IllegalArgumentException("missing option --" + name);
        }
        return value;
    }

    String text(String name, String fallback) {
        String value = values.remove(name);
        return value == null ? fallback : value;
    }

    long number(String name, long fallback) {
        return Long.parseLong(text(name, Long.toString(fallback)));
    }

    /** A comma-separated list. */
    List<String> list(String name) {
        return Arrays.asList(text(name).split(","));
    }

    /** Every option must have been taken by now: a misspelt one would silently test nothing. */
    void finish() {
        if (!values.isEmpty()) {
            throw new IllegalArgumentException("unknown options: " + values.keySet());
        }
    }
}
