import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own answers to ListOffsets. The argument is the bootstrap address. Each line of standard input is a question in
 * JSON with topic, timestamp (-1 the end, -2 the beginning, -3 the largest timestamp) and isolation (read_uncommitted
 * if it is missing); each line of the output is the question with the answer's offset and found timestamp added.
 */
public class Offsets {
    public static void main(String[] arguments) throws Exception {
        var json = new ObjectMapper();
        var input = new BufferedReader(new InputStreamReader(System.in));
        try (var admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                if (!line.isBlank()) System.out.println(json.writeValueAsString(answer(admin, json.readTree(line))));
            }
        }
    }

    static Map<String, Object> answer(Admin admin, JsonNode question) throws Exception {
        var partition = new TopicPartition(question.get("topic").asText(), question.path("partition").asInt(0));
        String isolation = question.path("isolation").asText("read_uncommitted");
        var options = new ListOffsetsOptions(IsolationLevel.valueOf(isolation.toUpperCase()));
        long timestamp = question.get("timestamp").asLong();
        OffsetSpec spec = timestamp == -1 ? OffsetSpec.latest()
            : timestamp == -2 ? OffsetSpec.earliest()
            : timestamp == -3 ? OffsetSpec.maxTimestamp()
            : OffsetSpec.forTimestamp(timestamp);
        var found = admin.listOffsets(Map.of(partition, spec), options).partitionResult(partition).get();
        var fields = new LinkedHashMap<String, Object>();
        fields.put("topic", partition.topic());
        fields.put("partition", partition.partition());
        fields.put("timestamp", timestamp);
        fields.put("isolation", isolation);
        fields.put("offset", found.offset());
        fields.put("found_timestamp", found.timestamp());
        fields.put("leader_epoch", found.leaderEpoch().orElse(null));
        return fields;
    }
}
