import java.util.Map;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * What Kafka's releases begin with. For each word of the command line, a release such as 4.0 or 3.9-IV0, one line:
 * {"release": …, "metadata.version": 25, "group.version": 1, …}, or {"release": …, "error": …} for one that is not known.
 */
public class Releases {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        for (String release : arguments) {
            Map<String, Object> told = new TreeMap<>();
            told.put("release", release);
            try {
                MetadataVersion version = MetadataVersion.fromVersionString(release, false);
                told.put(MetadataVersion.FEATURE_NAME, version.featureLevel());
                for (Feature feature : Feature.PRODUCTION_FEATURES) {
                    told.put(feature.featureName(), feature.defaultLevel(version));
                }
            } catch (IllegalArgumentException error) {
                told.put("error", error.getMessage());
            }
            System.out.println(json.writeValueAsString(told));
        }
    }
}
