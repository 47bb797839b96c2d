import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;

/** What Kafka's library says of patterns: for each line, [pattern, name, …], those names that match, or null. */
public class Patterns {
    public static void main(String[] arguments) throws Exception {
        var json = new ObjectMapper();
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] said = json.readValue(line, String[].class);
            List<String> matched = new ArrayList<>();
            try {
                Pattern pattern = Pattern.compile(said[0]);
                for (int place = 1; place < said.length; place++) {
                    if (pattern.matcher(said[place]).matches()) {
                        matched.add(said[place]);
                    }
                }
            } catch (PatternSyntaxException error) {
                matched = null;
            }
            System.out.println(json.writeValueAsString(matched));
        }
    }
}
