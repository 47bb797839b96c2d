import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/** Reads JAAS texts in base64, one in a line, and prints the options of each as Kafka reads them, or "refused". */
public class Jaas {
    public static void main(String[] arguments) {
        var lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String text = new String(Base64.getDecoder().decode(lines.nextLine()), StandardCharsets.UTF_8);
            System.out.println(read(text));
        }
    }

    private static String read(String text) {
        try {
            var context = JaasContext.loadClientContext(Map.of(SaslConfigs.SASL_JAAS_CONFIG, new Password(text)));
            var found = new StringBuilder("options");
            for (var option : context.configurationEntries().get(0).getOptions().entrySet()) {
                found.append(' ').append(encode(option.getKey())).append('=').append(encode((String) option.getValue()));
            }
            return found.toString();
        } catch (RuntimeException error) {
            return "refused";
        }
    }

    private static String encode(String text) {
        return "<" + Base64.getUrlEncoder().withoutPadding().encodeToString(text.getBytes(StandardCharsets.UTF_8)) + ">";
    }
}
