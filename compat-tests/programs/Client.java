import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java client, told what to do line by line; clients/program.py describes the lines. It is compiled once,
 * for the newest kafka-clients, and also run with an old one: only what both have is used.
 */
public class Client {
    static final ObjectMapper json = new ObjectMapper();
    static final Duration PATIENCE = Duration.ofSeconds(30);
    static final int EARLIEST = -2;
    static final int LATEST = -1;
    static final String CONSUMER = "org.apache.kafka.clients.consumer.";
    static final Map<String, String> ASSIGNORS = Map.of(
        "range", CONSUMER + "RangeAssignor",
        "roundrobin", CONSUMER + "RoundRobinAssignor",
        "sticky", CONSUMER + "StickyAssignor",
        "cooperative-sticky", CONSUMER + "CooperativeStickyAssignor");

    final String bootstrap;
    final Admin admin;

    Client(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        var client = new Client(arguments[0]);
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(client.answer(json.readTree(line)));
        }
        client.admin.close();
    }

    ObjectNode answer(JsonNode command) {
        ObjectNode answer = json.createObjectNode();
        try {
            answer.set("done", perform(command));
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            // What a consumer throws here is not what the broker's error is called.
            Errors known = cause instanceof OffsetOutOfRangeException
                ? Errors.OFFSET_OUT_OF_RANGE : Errors.forException(cause);
            error.printStackTrace();
            answer.put("code", known.code()).put("said", String.valueOf(cause));
        }
        return answer;
    }

    JsonNode perform(JsonNode command) throws Exception {
        String topic = command.path("topic").asText();
        var partition = new TopicPartition(topic, command.path("partition").asInt(0));
        return switch (command.get("do").asText()) {
            case "cluster" -> cluster();
            case "topics" -> json.valueToTree(admin.listTopics().names().get());
            case "create_topic" -> done(admin.createTopics(List.of(newTopic(topic, command))).all());
            case "delete_topic" -> done(admin.deleteTopics(List.of(topic)).all());
            case "describe_topic" -> describe(topic);
            case "add_partitions" -> done(admin.createPartitions(
                Map.of(topic, NewPartitions.increaseTo(command.get("total").asInt()))).all());
            case "describe_config" -> describeConfig(command);
            case "alter_config" -> alterConfig(topic, command);
            case "delete_records" -> done(admin.deleteRecords(
                Map.of(partition, RecordsToDelete.beforeOffset(command.get("before").asLong()))).all());
            case "produce" -> produce(topic, command);
            case "consume" -> consume(partition, command.get("offset").asLong(), command.get("count").asInt());
            case "offset_at" -> offsetAt(partition, command.get("timestamp").asLong());
            case "group" -> group(topic, command);
            default -> throw new IllegalArgumentException(command.toString());
        };
    }

    JsonNode cluster() throws Exception {
        var told = admin.describeCluster();
        ObjectNode cluster = json.createObjectNode().put("controller", told.controller().get().id());
        ArrayNode brokers = cluster.putArray("brokers");
        for (Node node : told.nodes().get()) {
            brokers.addArray().add(node.id()).add(node.host()).add(node.port());
        }
        return cluster;
    }

    static NewTopic newTopic(String topic, JsonNode command) {
        Map<String, String> configuration = new HashMap<>();
        command.get("config").fields().forEachRemaining(e -> configuration.put(e.getKey(), e.getValue().asText()));
        Optional<Short> brokerDefault = Optional.empty();
        return new NewTopic(topic, Optional.of(command.get("partitions").asInt()), brokerDefault)
            .configs(configuration);
    }

    JsonNode describe(String topic) throws Exception {
        ArrayNode partitions = json.createArrayNode();
        for (var partition : description(topic).partitions()) {
            ArrayNode row = partitions.addArray().add(partition.partition()).add(partition.leader().id());
            ArrayNode replicas = row.addArray();
            partition.replicas().forEach(node -> replicas.add(node.id()));
            ArrayNode isr = row.addArray();
            partition.isr().forEach(node -> isr.add(node.id()));
        }
        return partitions;
    }

    JsonNode describeConfig(JsonNode command) throws Exception {
        var kind = ConfigResource.Type.valueOf(command.get("kind").asText().toUpperCase());
        var resource = new ConfigResource(kind, command.get("name").asText());
        ObjectNode keys = json.createObjectNode();
        admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
            .forEach(entry -> keys.put(entry.name(), entry.value()));
        return keys;
    }

    JsonNode alterConfig(String topic, JsonNode command) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        command.get("put").fields().forEachRemaining(e -> changes.add(
            new AlterConfigOp(new ConfigEntry(e.getKey(), e.getValue().asText()), AlterConfigOp.OpType.SET)));
        command.get("drop").forEach(key -> changes.add(
            new AlterConfigOp(new ConfigEntry(key.asText(), null), AlterConfigOp.OpType.DELETE)));
        Map<ConfigResource, Collection<AlterConfigOp>> request =
            Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), changes);
        return done(admin.incrementalAlterConfigs(request).all());
    }

    JsonNode produce(String topic, JsonNode command) throws Exception {
        var properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("compression.type", command.get("codec").asText());
        properties.put("acks", command.get("acks").asText());
        properties.put("enable.idempotence", command.get("idempotent").asText());
        properties.put("linger.ms", "20");
        properties.put("batch.size", "262144");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ArrayNode offsets = json.createArrayNode();
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode row : command.get("records")) sent.add(producer.send(record(topic, row)));
            producer.flush();
            for (var future : sent) {
                RecordMetadata metadata = future.get();
                if (command.get("acks").asInt() != 0) offsets.add(metadata.offset());
            }
        }
        return offsets;
    }

    static ProducerRecord<byte[], byte[]> record(String topic, JsonNode row) {
        var record = new ProducerRecord<>(
            topic, row.get(0).asInt(), row.get(4).asLong(), bytes(row.get(1)), bytes(row.get(2)));
        for (JsonNode header : row.get(3)) record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        return record;
    }

    KafkaConsumer<byte[], byte[]> consumer() {
        var properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "none");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    JsonNode consume(TopicPartition partition, long offset, int count) {
        ArrayNode found = json.createArrayNode();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        try (var consumer = consumer()) {
            consumer.assign(List.of(partition));
            if (offset == EARLIEST) consumer.seekToBeginning(List.of(partition));
            else consumer.seek(partition, offset);
            while (found.size() < count) {
                if (System.nanoTime() > deadline) throw new IllegalStateException("only " + found.size() + " came");
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    if (found.size() < count) found.add(row(record));
                }
            }
        }
        return found;
    }

    /** A member until its input ends; clients/member.py describes the lines. What was told of is committed next. */
    JsonNode group(String topic, JsonNode command) throws Exception {
        var left = new Thread(() -> {
            try {
                while (System.in.read() >= 0) continue;
            } catch (IOException gone) {
                return;
            }
        });
        left.start();
        Set<TopicPartition> had = null;
        try (var consumer = new KafkaConsumer<byte[], byte[]>(
                memberProperties(command), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            tell("polls", json.createArrayNode());
            while (left.isAlive()) {
                var records = consumer.poll(Duration.ofMillis(200));
                var has = Set.copyOf(consumer.assignment());
                if (!has.equals(had)) tell("has", numbers(has));
                had = has;
                if (records.isEmpty()) continue;
                ArrayNode saw = json.createArrayNode();
                records.forEach(record -> saw.addArray().add(record.partition()).add(record.offset()));
                tell("saw", saw);
                try {
                    consumer.commitSync();
                } catch (CommitFailedException | RetriableException again) {
                    // The records are told of once more, perhaps by another member.
                    System.err.println(again);
                }
            }
        }
        return json.nullNode();
    }

    Properties memberProperties(JsonNode command) {
        var properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", command.get("group").asText());
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        if (command.get("protocol").asText().equals("consumer")) {
            properties.put("group.protocol", "consumer");
            if (command.hasNonNull("assignor")) properties.put("group.remote.assignor", command.get("assignor").asText());
        } else {
            properties.put("partition.assignment.strategy", ASSIGNORS.get(command.get("assignor").asText()));
            if (command.hasNonNull("session_ms")) {
                properties.put("session.timeout.ms", command.get("session_ms").asText());
                properties.put("heartbeat.interval.ms", "1000");
            }
        }
        return properties;
    }

    static void tell(String what, ArrayNode rows) {
        System.out.println(json.createObjectNode().set(what, rows));
    }

    static ArrayNode numbers(Set<TopicPartition> partitions) {
        ArrayNode numbers = json.createArrayNode();
        partitions.forEach(partition -> numbers.add(partition.partition()));
        return numbers;
    }

    static ArrayNode row(ConsumerRecord<byte[], byte[]> record) {
        ArrayNode row = json.createArrayNode().add(record.offset()).add(hex(record.key())).add(hex(record.value()));
        ArrayNode headers = row.addArray();
        record.headers().forEach(header -> headers.addArray().add(header.key()).add(hex(header.value())));
        return row.add(record.timestamp());
    }

    JsonNode offsetAt(TopicPartition partition, long timestamp) throws Exception {
        OffsetSpec spec = timestamp == EARLIEST ? OffsetSpec.earliest()
            : timestamp == LATEST ? OffsetSpec.latest() : OffsetSpec.forTimestamp(timestamp);
        return json.valueToTree(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset());
    }

    /** The one call whose name differs: `topicNameValues` came with Kafka 3.1, and `values` went with Kafka 4. */
    @SuppressWarnings("unchecked")
    TopicDescription description(String topic) throws Exception {
        var result = admin.describeTopics(List.of(topic));
        boolean isNew = Arrays.stream(DescribeTopicsResult.class.getMethods())
            .anyMatch(method -> method.getName().equals("topicNameValues"));
        var method = DescribeTopicsResult.class.getMethod(isNew ? "topicNameValues" : "values");
        return ((Map<String, KafkaFuture<TopicDescription>>) method.invoke(result)).get(topic).get();
    }

    static JsonNode done(KafkaFuture<Void> future) throws Exception {
        future.get();
        return json.nullNode();
    }

    static byte[] bytes(JsonNode hex) {
        return hex.isNull() ? null : HexFormat.of().parseHex(hex.asText());
    }

    static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }
}
