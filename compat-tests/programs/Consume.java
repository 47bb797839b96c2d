import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumer, from the beginning to the end of topics, without a group: one line of JSON per record.
 * Arguments: bootstrap, isolation levels with a comma between them, topics. Bytes are hexadecimal.
 */
public class Consume {
    static final ObjectMapper json = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        var topics = Arrays.copyOfRange(arguments, 2, arguments.length);
        for (String isolation : arguments[1].split(",")) {
            consume(arguments[0], isolation, topics);
        }
    }

    static void consume(String bootstrap, String isolation, String[] topics) throws Exception {
        var properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("isolation.level", isolation);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("fetch.max.wait.ms", "20");
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> left = new ArrayList<>();
            for (String topic : topics) {
                consumer.partitionsFor(topic).forEach(p -> left.add(new TopicPartition(topic, p.partition())));
            }
            consumer.assign(left);
            consumer.seekToBeginning(left);
            Map<TopicPartition, Long> ends = consumer.endOffsets(left);
            while (!left.isEmpty()) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println(json.writeValueAsString(described(isolation, record)));
                }
                left.removeIf(partition -> consumer.position(partition) >= ends.get(partition));
            }
        }
    }

    static Map<String, Object> described(String isolation, ConsumerRecord<byte[], byte[]> record) {
        var fields = new LinkedHashMap<String, Object>();
        fields.put("isolation", isolation);
        fields.put("topic", record.topic());
        fields.put("partition", record.partition());
        fields.put("offset", record.offset());
        fields.put("timestamp", record.timestamp());
        fields.put("timestamp_type", record.timestampType().name);
        fields.put("leader_epoch", record.leaderEpoch().orElse(null));
        fields.put("key", hex(record.key()));
        fields.put("value", hex(record.value()));
        var headers = new ArrayList<List<String>>();
        record.headers().forEach(header -> headers.add(Arrays.asList(header.key(), hex(header.value()))));
        fields.put("headers", headers);
        return fields;
    }

    static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }
}
