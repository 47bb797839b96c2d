import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import javax.security.auth.x500.X500Principal;

import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Reads lines from standard input, and answers each with a line in hexadecimal UTF-8, or "none".
 *
 *     name HEX             X500Principal.getName() of a name in DER
 *     map HEX HEX          the user name that rules (first) make of a name (second), by Kafka's own class
 */
public class CertificateNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(answer(words));
        }
    }

    private static String answer(String[] words) {
        if (words[0].equals("name"))
            return hex(new X500Principal(HexFormat.of().parseHex(words[1])).getName());
        try {
            return hex(SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2])));
        } catch (Exception noRule) {
            return "none";
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    private static String hex(String text) {
        return "=" + HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }
}
