import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Groups of Kafka's own consumers are rolled from one protocol to the other, one consumer after another, while records
 * come in all the time. Arguments: bootstrap, topic (which exists), assignors of the classic protocol with a comma between
 * them, each a class and a group of its own; then the protocols to roll to, in their order. For each group a line of JSON
 * for each protocol that was reached, and a last one that says how many records were written and how many different
 * ones were read.
 */
public class Rollout {
    static final int CONSUMERS = 2;
    static final long PATIENCE_MS = 120_000;
    static final ObjectMapper json = new ObjectMapper();

    final String bootstrap;
    final String topic;
    final String assignor;
    final String group;
    final Map<String, AtomicLong> seen = new ConcurrentHashMap<>();
    final List<Reader> readers = new ArrayList<>();

    Rollout(String bootstrap, String topic, String assignor) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.assignor = assignor;
        this.group = topic + " " + assignor;
    }

    /** One consumer and its thread. */
    class Reader extends Thread {
        final KafkaConsumer<byte[], byte[]> consumer;
        volatile int partitions = 0;
        volatile Exception failure;

        Reader(String protocol) {
            consumer = new KafkaConsumer<>(properties(protocol), new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(List.of(topic));
            start();
        }

        @Override
        public void run() {
            try (consumer) {
                while (true) {
                    for (var record : consumer.poll(Duration.ofMillis(50))) {
                        seen.computeIfAbsent(record.partition() + "-" + record.offset(), __ -> new AtomicLong())
                            .incrementAndGet();
                    }
                    partitions = consumer.assignment().size();
                }
            } catch (WakeupException told) {
                partitions = 0;
            } catch (Exception error) {
                failure = error;
            }
        }

        void end() throws InterruptedException {
            consumer.wakeup();
            join(PATIENCE_MS);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var isOver = new AtomicBoolean();
        var written = new AtomicLong();
        var writer = new Thread(() -> write(arguments[0], arguments[1], isOver, written));
        writer.start();
        var pool = Executors.newCachedThreadPool();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            List<Rollout> rollouts = new ArrayList<>();
            List<Future<?>> rolls = new ArrayList<>();
            for (String assignor : arguments[2].split(",")) {
                var rollout = new Rollout(arguments[0], arguments[1], assignor);
                rollouts.add(rollout);
                rolls.add(pool.submit(() -> rollout.roll(admin, List.of(arguments).subList(3, arguments.length))));
            }
            try {
                for (Future<?> roll : rolls) {
                    roll.get();
                }
                isOver.set(true);
                writer.join();
                for (Rollout rollout : rollouts) {
                    rollout.waitUntil(() -> rollout.seen.size() >= written.get(), "all records are seen");
                    rollout.say("written", written.get(), "seen", rollout.seen.size(), "seen_again", rollout.seenAgain());
                }
            } finally {
                isOver.set(true);
                pool.shutdownNow();
                for (Rollout rollout : rollouts) {
                    for (Reader reader : rollout.readers) {
                        reader.end();
                    }
                }
            }
        }
    }

    Object roll(Admin admin, List<String> protocols) throws Exception {
        int partitions = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        for (String protocol : protocols) {
            for (int place = 0; place < CONSUMERS; place++) {
                if (readers.size() > place) {
                    readers.get(place).end();
                    readers.set(place, new Reader(protocol));
                } else {
                    readers.add(new Reader(protocol));
                }
                waitUntil(() -> shared(readers, partitions), "all partitions are read");
            }
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            say("protocol", protocol, "type", described.type().toString(), "members", described.members().size());
        }
        return null;
    }

    long seenAgain() {
        return seen.values().stream().filter(times -> times.get() > 1).count();
    }

    void say(Object... fields) throws Exception {
        var line = new LinkedHashMap<String, Object>();
        line.put("assignor", assignor);
        for (int place = 0; place < fields.length; place += 2) {
            line.put((String) fields[place], fields[place + 1]);
        }
        System.out.println(json.writeValueAsString(line));
    }

    static boolean shared(List<Reader> readers, int partitions) {
        return readers.stream().mapToInt(reader -> reader.partitions).sum() == partitions
            && readers.stream().allMatch(reader -> reader.partitions > 0);
    }

    void waitUntil(BooleanSupplier holds, String what) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!holds.getAsBoolean()) {
            for (Reader reader : readers) {
                if (reader.failure != null) {
                    throw reader.failure;
                }
            }
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("in vain: " + what + "; "
                    + readers.stream().map(reader -> reader.partitions).toList() + ", seen " + seen.size());
            }
            Thread.sleep(20);
        }
    }

    static void write(String bootstrap, String topic, AtomicBoolean isOver, AtomicLong written) {
        var properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            while (!isOver.get()) {
                for (int count = 0; count < 20; count++) {
                    byte[] key = Long.toString(written.incrementAndGet()).getBytes();
                    producer.send(new ProducerRecord<>(topic, key, key));
                }
                producer.flush();
                Thread.sleep(20);
            }
        } catch (InterruptedException told) {
            Thread.currentThread().interrupt();
        }
    }

    Properties properties(String protocol) {
        var properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("group.protocol", protocol);
        properties.put("auto.offset.reset", "earliest");
        if (protocol.equals("classic")) {
            properties.put("partition.assignment.strategy", assignor);
            properties.put("heartbeat.interval.ms", "200");
        }
        return properties;
    }
}
