import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer and admin client, told what to do by lines of JSON on standard input; the argument is the
 * bootstrap address. Each line is one command:
 *
 *   {"create": {"topic": {configuration}, ...}}      {"alter": {"topic": {configuration}, ...}}
 *   {"delete_before": {"topic": "t", "offset": 5}}   {"settle": "topic"}
 *   {"open": {configuration}, "by": "a"}             {"send": {record}, "by": "a"}
 *   {"flush": 1, "by": "a"}   {"begin": 1, ...}   {"commit": 1, ...}   {"abort": 1, ...}   {"halt": 1}
 *
 * There may be several producers, named by "by"; without it, the one without a name. Opening one closes its namesake, and
 * the end of the input closes all, which aborts what is open; "halt" ends the program as a crash would. The marker of a
 * transaction comes some time after its commit; "settle" waits until a topic has no open transaction. Bytes are
 * hexadecimal.
 */
public class Produce {
    static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        var json = new ObjectMapper();
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (!line.isBlank()) perform(arguments[0], json.readTree(line));
        }
        producers.values().forEach(KafkaProducer::close);
    }

    static void perform(String bootstrap, JsonNode command) throws Exception {
        String name = command.path("by").asText("");
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        String verb = command.fieldNames().next();
        JsonNode object = command.get(verb);
        switch (verb) {
            case "create" -> create(bootstrap, object);
            case "alter" -> alter(bootstrap, object);
            case "delete_before" -> deleteBefore(bootstrap, object);
            case "settle" -> settle(bootstrap, new TopicPartition(object.asText(), 0));
            case "open" -> {
                if (producer != null) producer.close();
                producers.put(name, open(bootstrap, object));
            }
            case "send" -> producer.send(record(object), (metadata, error) -> {
                if (error != null) fail(error);
            });
            case "flush" -> producer.flush();
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            // What waits in the producer would be dropped by an abort; here it shall reach the log first.
            case "abort" -> {
                producer.flush();
                producer.abortTransaction();
            }
            case "halt" -> Runtime.getRuntime().halt(0);
            default -> throw new IllegalArgumentException(verb);
        }
    }

    static void create(String bootstrap, JsonNode topics) throws Exception {
        List<NewTopic> wanted = new ArrayList<>();
        for (var topic : topics.properties()) {
            Map<String, String> configuration = new HashMap<>();
            topic.getValue().properties().forEach(pair -> configuration.put(pair.getKey(), pair.getValue().asText()));
            wanted.add(new NewTopic(topic.getKey(), Optional.of(1), Optional.empty()).configs(configuration));
        }
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(wanted).all().get();
        }
    }

    static void alter(String bootstrap, JsonNode topics) throws Exception {
        Map<ConfigResource, Collection<AlterConfigOp>> changes = new HashMap<>();
        for (var topic : topics.properties()) {
            List<AlterConfigOp> keys = new ArrayList<>();
            topic.getValue().properties().forEach(pair -> keys.add(new AlterConfigOp(
                new ConfigEntry(pair.getKey(), pair.getValue().asText()), AlterConfigOp.OpType.SET)));
            changes.put(new ConfigResource(ConfigResource.Type.TOPIC, topic.getKey()), keys);
        }
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(changes).all().get();
        }
    }

    static void deleteBefore(String bootstrap, JsonNode where) throws Exception {
        var partition = new TopicPartition(where.get("topic").asText(), where.path("partition").asInt(0));
        var records = RecordsToDelete.beforeOffset(where.get("offset").asLong());
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.deleteRecords(Map.of(partition, records)).all().get();
        }
    }

    static void settle(String bootstrap, TopicPartition partition) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            while (end(admin, partition, IsolationLevel.READ_COMMITTED)
                != end(admin, partition, IsolationLevel.READ_UNCOMMITTED)) {
                Thread.sleep(5);
            }
        }
    }

    static long end(Admin admin, TopicPartition partition, IsolationLevel isolation) throws Exception {
        var asked = Map.of(partition, OffsetSpec.latest());
        return admin.listOffsets(asked, new ListOffsetsOptions(isolation)).partitionResult(partition).get().offset();
    }

    static KafkaProducer<byte[], byte[]> open(String bootstrap, JsonNode configuration) {
        var properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        configuration.properties().forEach(pair -> properties.put(pair.getKey(), pair.getValue().asText()));
        var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        if (properties.containsKey("transactional.id")) producer.initTransactions();
        return producer;
    }

    static ProducerRecord<byte[], byte[]> record(JsonNode node) {
        var record = new ProducerRecord<>(node.get("topic").asText(), node.path("partition").asInt(0),
            node.get("timestamp").asLong(), bytes(node.get("key")), bytes(node.get("value")));
        for (JsonNode header : node.path("headers")) {
            record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return record;
    }

    static byte[] bytes(JsonNode hex) {
        return hex == null || hex.isNull() ? null : HexFormat.of().parseHex(hex.asText());
    }

    static void fail(Exception error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }
}
