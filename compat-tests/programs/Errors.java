import org.apache.kafka.common.errors.RetriableException;

/** Prints every error of the protocol as Kafka's clients know it: code, name, retriable. */
public class Errors {
    public static void main(String[] arguments) {
        for (var error : org.apache.kafka.common.protocol.Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.println(error.code() + " " + error.name() + " " + retriable);
        }
    }
}
