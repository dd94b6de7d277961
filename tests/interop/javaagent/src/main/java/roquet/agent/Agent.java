package roquet.agent;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A RocketMQ client that does what lines of standard input say; its twin in Go does the same.
 *
 * <p>A line is a JSON object with {@code id}, {@code do} and the parameters of that command. Commands
 * run at the same time; the answer of each is a line with its {@code id} and either {@code ok} or
 * {@code error}. Consumers and endless senders also print lines with {@code event}, the moment
 * something happened, so that a killed agent has told what it got. Only what is the same in client
 * libraries 4.x and 5.x is used.
 */
public final class Agent {
    private Agent() {
    }

    public static void main(String[] args) throws Exception {
        Output output = new Output(new PrintStream(System.out, true, StandardCharsets.UTF_8));
        // RocketMQ's libraries print to standard output here and there.
        System.setOut(System.err);
        Commands commands = new Commands(output);
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Parameters parameters = Parameters.parse(line);
            threads.execute(() -> answer(commands, parameters, output));
        }
        // The client library keeps threads that are not daemons.
        System.exit(0);
    }

    private static void answer(Commands commands, Parameters parameters, Output output) {
        long id = parameters.number("id");
        try {
            output.print(Map.of("id", id, "ok", commands.run(parameters)));
        } catch (Throwable error) {
            error.printStackTrace();
            output.print(Map.of("id", id, "error", error.toString()));
        }
    }
}
