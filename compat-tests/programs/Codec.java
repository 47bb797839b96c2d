import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

/**
 * Judges encoded messages. A line of input holds the name of a message, its version, what it says as JSON, and the bytes
 * that somebody wrote for it. Kafka makes the message from the JSON and writes it, and reads it from the bytes; for each
 * line on which the two disagree, one line of output says how.
 */
public class Codec {
    static final String[] PACKAGES = {
        "org.apache.kafka.common.message.", "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.", "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.", "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int judged = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            String problem;
            try {
                problem = judge(parts[0], Short.parseShort(parts[1]), json.readTree(parts[2]), parts[3]);
            } catch (InvocationTargetException wrapped) {
                problem = wrapped.getCause().toString();
            } catch (RuntimeException refused) {
                problem = refused.toString();
            }
            if (problem != null) {
                System.out.println(parts[0] + " v" + parts[1] + ": " + problem + " for " + parts[2]);
            }
            judged++;
        }
        System.out.println("judged " + judged);
    }

    static String judge(String name, short version, JsonNode said, String theirs) throws Exception {
        Class<?> type = find(name);
        Class<?> converter = Class.forName(type.getName() + "JsonConverter");
        Message fromJson = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, said, version);
        ByteBuffer written = MessageUtil.toByteBufferAccessor(fromJson, version).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        String ours = HexFormat.of().formatHex(bytes);
        if (!ours.equals(theirs)) {
            return "Kafka writes " + ours + ", not " + theirs;
        }
        ByteBuffer buffer = ByteBuffer.wrap(HexFormat.of().parseHex(theirs));
        Object fromBytes = type.getConstructor(Readable.class, short.class).newInstance(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            return "Kafka leaves " + buffer.remaining() + " bytes";
        }
        return fromBytes.equals(fromJson) ? null : "Kafka reads " + fromBytes;
    }

    static Class<?> find(String name) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            for (String ending : new String[] {"", "Data"}) {
                try {
                    return Class.forName(place + name + ending);
                } catch (ClassNotFoundException elsewhere) {
                    // The next package may have it.
                }
            }
        }
        throw new ClassNotFoundException(name);
    }
}
