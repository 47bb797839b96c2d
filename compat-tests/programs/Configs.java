import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * What Kafka says of configurations. Each line of standard input is a question in JSON, each line of output its answer:
 *
 *   {"definitions": 1}                          every key of brokers, topics, groups and client metrics; how each broker
 *                                               key may be changed at run time; the broker keys behind each other key
 *   {"value": ["topic", "retention.ms", "5"]}   {"shown": the value as Kafka prints it} or {"error": its complaint}
 *   {"server": {"node.id": "1", ...}}           {"listeners": [...], ...} of a node that starts so, or {"error": ...}
 *   {"topic": {"retention.ms": "5", ...}}       {} if a topic may be configured so, or {"error": ...}
 *   {"properties": "6b3d76"}                    the pairs in the (hexadecimal) bytes of a properties file, or {"error": ...}
 */
public class Configs {
    static final ObjectMapper json = new ObjectMapper();
    static final Map<String, ConfigDef> definitions = Map.of(
        "broker", AbstractKafkaConfig.CONFIG_DEF,
        "topic", LogConfig.configDefCopy(),
        "group", GroupConfig.CONFIG_DEF,
        "client_metrics", ClientMetricsConfigs.configDef());

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Object answer;
            try {
                answer = answer(json.readTree(line));
            } catch (Exception error) {
                answer = Map.of("error", String.valueOf(error.getMessage()));
            }
            System.out.println(json.writeValueAsString(answer));
        }
    }

    static Object answer(JsonNode question) throws Exception {
        String verb = question.fieldNames().next();
        JsonNode object = question.get(verb);
        return switch (verb) {
            case "definitions" -> definitions();
            case "value" -> {
                ConfigDef.ConfigKey key = definitions.get(object.get(0).asText()).configKeys().get(object.get(1).asText());
                Object value = new ConfigDef().define(key).parse(Map.of(key.name, object.get(2).asText())).get(key.name);
                yield Map.of("shown", shown(value, key.type));
            }
            case "server" -> server(strings(object));
            case "topic" -> {
                LogConfig.validate(strings(object));
                yield Map.of();
            }
            case "properties" -> {
                var properties = new Properties();
                properties.load(new ByteArrayInputStream(HexFormat.of().parseHex(object.asText())));
                yield properties;
            }
            default -> throw new IllegalArgumentException(verb);
        };
    }

    static Map<String, String> strings(JsonNode object) {
        var pairs = new TreeMap<String, String>();
        object.fields().forEachRemaining(pair -> pairs.put(pair.getKey(), pair.getValue().asText()));
        return pairs;
    }

    static Map<String, Object> server(Map<String, String> settings) {
        var config = new KafkaConfig(settings, false);
        var told = new TreeMap<String, Object>();
        told.put("listeners", endpoints(config.listeners()));
        told.put("advertised", endpoints(config.effectiveAdvertisedBrokerListeners()));
        told.put("log_dirs", config.logDirs());
        if (config.processRoles().toString().toLowerCase().contains("broker")) {
            told.put("inter_broker", config.interBrokerListenerName().value());
        }
        return told;
    }

    static List<String> endpoints(Object sequence) {
        var told = new ArrayList<String>();
        var iterator = sequence instanceof Iterable<?> list
            ? list.iterator()
            : scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Iterable<?>) sequence).iterator();
        while (iterator.hasNext()) {
            var endpoint = (org.apache.kafka.common.Endpoint) iterator.next();
            told.add(endpoint.listener() + " " + endpoint.securityProtocol() + " " + endpoint.host() + " " + endpoint.port());
        }
        return told;
    }

    static Map<String, Object> definitions() {
        var synonyms = new TreeMap<String, List<String>>();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, list) ->
            synonyms.put(name, list.stream().map(synonym -> synonym.name()).toList()));
        var ofGroups = new TreeMap<String, String>();
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach((name, synonym) -> ofGroups.put(name, synonym.orElse(null)));
        var told = new LinkedHashMap<String, Object>();
        definitions.forEach((scope, definition) -> told.put(scope, keys(definition)));
        told.put("modes", new TreeMap<>(DynamicBrokerConfig.dynamicConfigUpdateModes()));
        told.put("topic_synonyms", synonyms);
        told.put("group_synonyms", ofGroups);
        return told;
    }

    static List<Map<String, Object>> keys(ConfigDef definition) {
        var keys = new ArrayList<Map<String, Object>>();
        for (var key : new TreeMap<>(definition.configKeys()).values()) {
            var told = new LinkedHashMap<String, Object>();
            told.put("name", key.name);
            told.put("type", key.type.name());
            told.put("required", !key.hasDefault());
            told.put("default", key.hasDefault() ? shown(key.defaultValue, key.type) : null);
            told.put("valid", key.validator == null ? null : key.validator.toString());
            told.put("importance", key.importance.name());
            told.put("internal", key.internalConfig);
            keys.add(told);
        }
        return keys;
    }

    static String shown(Object value, ConfigDef.Type type) {
        return value instanceof Password password ? password.value() : ConfigDef.convertToString(value, type);
    }
}
