package roquet.interop;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * A RocketMQ client for tests, driven by commands: {@code wait}, {@code offsets}, {@code consume},
 * {@code produce}, {@code query} and {@code mqadmin} (see {@link Commands} for their options).
 *
 * <p>{@code Main <command> --name value ...} runs one command. {@code Main serve} runs one command a
 * line of standard input, each line a JSON array of the same words, so that many commands share one
 * virtual machine. Results are JSON lines on standard output; in {@code serve} mode the answer to a
 * command ends with {@code {"done":true}} or {@code {"error":"..."}}.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // RocketMQ's libraries print to standard output here and there.
        System.setOut(System.err);
        Commands commands = new Commands(object -> out.println(Json.line(object)));
        if (args.length == 0) {
            throw new IllegalArgumentException("usage: Main serve | Main <command> --name value ...");
        }
        if (args[0].equals("serve")) {
            serve(commands, out);
        } else {
            commands.run(Arrays.asList(args));
        }
        // The client library keeps threads that are not daemons.
        System.exit(0);
    }

    private static void serve(Commands commands, PrintStream out) throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> words = JSON.parseArray(line, String.class);
            try {
                commands.run(words);
                out.println(Json.line(Map.of("done", true)));
            } catch (Exception e) {
                e.printStackTrace();
                out.println(Json.line(Map.of("error", e.toString())));
            }
        }
    }
}
