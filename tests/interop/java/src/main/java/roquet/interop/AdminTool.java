package roquet.interop;

import com.alibaba.fastjson2.JSON;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * {@code mqadmin}: runs a command of Apache RocketMQ's admin tool and returns what it prints.
 *
 * <p>{@code --words} is a JSON array of its arguments. With {@code --endless true} the command is one
 * that repeats itself until it is interrupted, which is done when it first pauses.
 *
 * <p>A command closes its client before it ends, and that waits up to three seconds for a thread that
 * looks for events. That thread is woken, which is all that makes a hundred commands bearable.
 */
final class AdminTool extends MQAdminStartup {
    private static final int LOOK_MS = 10;
    private static final String TOOLS = "org.apache.rocketmq.tools.command.";

    private AdminTool() {
    }

    static Map<String, Object> run(Arguments arguments) throws Exception {
        List<String> words = new ArrayList<>(JSON.parseArray(arguments.text("words"), String.class));
        words.addAll(List.of("-n", arguments.text("namesrv")));
        boolean endless = Boolean.parseBoolean(arguments.text("endless", "false"));
        arguments.finish();
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream failures = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(failures, true, StandardCharsets.UTF_8));
        try {
            // Some commands can run only once.
            SUB_COMMANDS.clear();
            Thread thread = new Thread(() -> main0(words.toArray(new String[0]), null), "mqadmin");
            thread.start();
            for (thread.join(LOOK_MS); thread.isAlive(); thread.join(LOOK_MS)) {
                hurry(thread, endless);
            }
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return Map.of(
            "printed", printed.toString(StandardCharsets.UTF_8),
            "failures", failures.toString(StandardCharsets.UTF_8));
    }

    private static void hurry(Thread command, boolean endless) {
        List<StackTraceElement> calls = Arrays.asList(command.getStackTrace());
        if (calls.stream().anyMatch(call -> call.getMethodName().equals("shutdown"))) {
            for (Thread thread : Thread.getAllStackTraces().keySet()) {
                if (thread.getName().startsWith("NettyEventExecutor")) {
                    thread.interrupt();
                }
            }
        } else if (endless && calls.size() > 1 && calls.get(0).getMethodName().equals("sleep")
            && calls.get(1).getClassName().startsWith(TOOLS)) {
            command.interrupt();
        }
    }
}
