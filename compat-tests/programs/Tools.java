import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools, one after the other in one Java machine, because its start takes longer than most tools.
 *
 *   → {"tool": "org.apache.kafka.tools.TopicCommand", "arguments": ["--list", ...], "stdin": ""}
 *   ← {"exit": 0, "out": "...", "err": "..."}
 *
 * Each runs as its script would run it, through its main method. A tool that wants to end the machine ends only itself;
 * some take that for a failure and want to end it once more, so the first word counts. What a tool wants done at the end
 * of the machine is done when the tool ends: the console producer sends its last records then.
 */
public class Tools {
    static class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    static Integer ended;
    static final List<Runnable> hooks = new ArrayList<>();

    static void end(int status) {
        if (ended == null) ended = status;
        throw new Ended();
    }

    public static void main(String[] arguments) throws Exception {
        var json = new ObjectMapper();
        PrintStream answers = System.out;
        PrintStream log = System.err;
        InputStream questions = System.in;
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        var input = new BufferedReader(new InputStreamReader(questions));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = json.readTree(line);
            var out = new ByteArrayOutputStream();
            var err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            System.setIn(new ByteArrayInputStream(command.path("stdin").asText().getBytes(StandardCharsets.UTF_8)));
            int status = run(command);
            hooks.forEach(Runnable::run);
            hooks.clear();
            System.out.flush();
            System.setOut(answers);
            System.setErr(log);
            answers.println(json.createObjectNode().put("exit", status)
                .put("out", out.toString(StandardCharsets.UTF_8)).put("err", err.toString(StandardCharsets.UTF_8)));
        }
        System.exit(0);
    }

    /** The status that the tool ends with, as its script would see it. */
    static int run(JsonNode command) throws Exception {
        String[] arguments = new ObjectMapper().treeToValue(command.get("arguments"), String[].class);
        ended = null;
        try {
            Class.forName(command.get("tool").asText()).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return ended == null ? 0 : ended;
        } catch (InvocationTargetException failure) {
            if (ended != null) return ended;
            failure.getCause().printStackTrace();
            return 1;
        }
    }
}
