import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own Java client as a copier; clients/copier.py describes the lines. It is also run with an old client. */
public class Copy {
    static final ObjectMapper json = new ObjectMapper();
    static final Duration POLL = Duration.ofMillis(200);

    final JsonNode command;
    final KafkaConsumer<String, String> consumer;
    final KafkaProducer<String, String> producer;

    Copy(String bootstrap, JsonNode command) {
        this.command = command;
        var deserializer = new StringDeserializer();
        this.consumer = new KafkaConsumer<>(reading(bootstrap, command), deserializer, deserializer);
        this.producer = new KafkaProducer<>(writing(bootstrap, command), new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        JsonNode command = json.readTree(input.readLine());
        var left = new Thread(() -> {
            try {
                while (input.read() >= 0) continue;
            } catch (IOException gone) {
                return;
            }
        });
        left.setDaemon(true);
        left.start();
        new Copy(arguments[0], command).run(left);
        System.exit(0);
    }

    static Properties reading(String bootstrap, JsonNode command) {
        var properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", command.get("group").asText());
        properties.put("isolation.level", "read_committed");
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.poll.records", command.get("count").asText());
        if (command.get("protocol").asText().equals("consumer")) {
            properties.put("group.protocol", "consumer");
        } else {
            properties.put("session.timeout.ms", command.get("session_ms").asText());
            properties.put("heartbeat.interval.ms", "500");
        }
        return properties;
    }

    static Properties writing(String bootstrap, JsonNode command) {
        var properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", command.get("transactional_id").asText());
        properties.put("transaction.timeout.ms", command.get("timeout_ms").asText());
        return properties;
    }

    void run(Thread left) throws Exception {
        producer.initTransactions();
        consumer.subscribe(List.of(command.get("source").asText()));
        for (int number = 0; left.isAlive();) {
            long began = System.currentTimeMillis();
            ConsumerRecords<String, String> records = consumer.poll(POLL);
            if (!records.isEmpty()) copy(records, number++, began);
        }
        consumer.close();
        producer.close();
    }

    void copy(ConsumerRecords<String, String> records, int number, long began) throws Exception {
        ObjectNode told = json.createObjectNode().put("began", began);
        ArrayNode read = told.putArray("read");
        for (var record : records) read.addArray().add(record.partition()).add(record.offset()).add(record.value());
        tell(told);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try {
            producer.beginTransaction();
            for (var record : records) sent.add(producer.send(copied(record, number)));
            producer.flush();
            producer.sendOffsetsToTransaction(next(records), consumer.groupMetadata());
            if (number % command.get("abort_every").asInt() == command.get("abort_every").asInt() - 1) {
                abort();
                return;
            }
            tell(json.createObjectNode().put("asks", "commit"));
            commit();
        } catch (ProducerFencedException fatal) {
            throw fatal;
        } catch (KafkaException error) {
            System.err.println(error);
            abort(); // throws if there is nothing to abort any more, and ends the program
            return;
        }
        ObjectNode done = json.createObjectNode().put("ended", "ok").put("at", System.currentTimeMillis());
        ArrayNode offsets = done.putArray("offsets");
        for (var future : sent) offsets.add(future.get().offset());
        tell(done);
    }

    ProducerRecord<String, String> copied(ConsumerRecord<String, String> record, int number) {
        String value = record.value() + "|" + command.get("name").asText() + "|" + number;
        return new ProducerRecord<>(command.get("target").asText(), record.partition(), record.key(), value);
    }

    /** Whether it was committed is not known when time is up, so that nothing else can be done than to ask again. */
    void commit() {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException late) {
                System.err.println(late);
            }
        }
    }

    /** And what was read is read again, from where the group stands. */
    void abort() {
        producer.abortTransaction();
        tell(json.createObjectNode().put("ended", "fail").put("at", System.currentTimeMillis()));
        var committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata place = committed.get(partition);
            consumer.seek(partition, place == null ? 0 : place.offset());
        }
    }

    static Map<TopicPartition, OffsetAndMetadata> next(ConsumerRecords<String, String> records) {
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        for (var record : records) {
            var place = new OffsetAndMetadata(record.offset() + 1, record.leaderEpoch(), "");
            next.put(new TopicPartition(record.topic(), record.partition()), place);
        }
        return next;
    }

    static void tell(ObjectNode line) {
        System.out.println(line);
    }
}
