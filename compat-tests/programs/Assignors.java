import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Kafka's own server-side assignors. One JSON object per line of standard input:
 * {"assignor": "uniform", "topics": {"1": 3}, "members": [{"id": …, "instance": …, "topics": [1], "has": {"1": [0, 1]}}]}
 * Topics are known by small numbers. Each line is answered by one: {"<member>": {"<topic>": [partitions]}}.
 */
public class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(JSON.writeValueAsString(assign(JSON.readTree(line))));
        }
    }

    private static Uuid id(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    private static Map<String, Map<String, Set<Integer>>> assign(JsonNode asked) {
        Map<Uuid, Integer> counts = new HashMap<>();
        asked.get("topics").fields().forEachRemaining(field -> counts.put(id(field.getKey()), field.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (JsonNode member : asked.get("members")) {
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(number -> topics.add(id(number.asText())));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> has = new LinkedHashMap<>();
            member.get("has").fields().forEachRemaining(field -> {
                Set<Integer> partitions = new TreeSet<>();
                field.getValue().forEach(partition -> partitions.add(partition.asInt()));
                has.put(id(field.getKey()), partitions);
                for (int partition : partitions) {
                    owners.computeIfAbsent(id(field.getKey()), __ -> new HashMap<>())
                        .put(partition, member.get("id").asText());
                }
            });
            Optional<String> instance = Optional.ofNullable(member.get("instance").textValue());
            members.put(member.get("id").asText(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(Collections.unmodifiableMap(has))));
        }
        SubscriptionType type = subscriptions.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        ConsumerGroupPartitionAssignor assignor =
            asked.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<String, Map<String, Set<Integer>>> answer = new TreeMap<>();
        assignor.assign(new GroupSpecImpl(members, type, owners), describer(counts)).members().forEach((member, given) -> {
            Map<String, Set<Integer>> partitions = new TreeMap<>();
            given.partitions().forEach((topic, numbers) ->
                partitions.put(Long.toString(topic.getLeastSignificantBits()), new TreeSet<>(numbers)));
            answer.put(member, partitions);
        });
        return answer;
    }

    private static SubscribedTopicDescriber describer(Map<Uuid, Integer> counts) {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
    }
}
