import java.io.PrintWriter;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.LoaderManifest;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.util.SnapshotFileReader;
import org.apache.kafka.shell.command.Commands;
import org.apache.kafka.shell.state.MetadataShellPublisher;
import org.apache.kafka.shell.state.MetadataShellState;

/**
 * Kafka's metadata shell on one file, a snapshot or a segment of the log: its reader, its loader, its commands.
 *
 *   Shell FILE "ls /image/topics/byName" "cat /image/cluster/brokers/1"
 *
 * Before what a command prints stands a line with a dollar and the command. The shell's own main method does the same
 * in an order of luck: it may run its command before the file is loaded, and then sees nothing; and if the file is loaded
 * before its reader is through, it waits for ever. Here the file is read whole first. What the loader does not
 * understand ends this program with status 1.
 */
public class Shell {
    static final long PATIENCE_SECONDS = 30;

    static void until(BooleanSupplier isSo) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (!isSo.getAsBoolean()) {
            if (System.nanoTime() > end) throw new IllegalStateException("that takes too long");
            Thread.sleep(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var state = new MetadataShellState();
        var loaded = new AtomicBoolean();
        var fault = new AtomicReference<String>();
        var publisher = new MetadataShellPublisher(state) {
            @Override
            public void onMetadataUpdate(MetadataDelta delta, MetadataImage image, LoaderManifest manifest) {
                super.onMetadataUpdate(delta, image, manifest);
                loaded.set(true);
            }
        };
        try (var loader = new MetadataLoader.Builder()
                .setNodeId(-1)
                .setHighWaterMarkAccessor(() -> OptionalLong.of(0))
                .setFaultHandler((message, cause) -> {
                    fault.compareAndSet(null, message + ": " + cause);
                    return new RuntimeException(message, cause);
                })
                .build()) {
            try (var reader = new SnapshotFileReader(arguments[0], loader)) {
                reader.startup();
                until(() -> reader.highWaterMark().isPresent());  // which it has from the last batch on
            }
            loader.installPublishers(List.of(publisher)).get(PATIENCE_SECONDS, TimeUnit.SECONDS);
            until(() -> loaded.get() || fault.get() != null);
        }
        if (fault.get() != null) {
            System.err.println(fault.get());
            Exit.exit(1);
        }
        var out = new PrintWriter(System.out);
        for (String command : List.of(arguments).subList(1, arguments.length)) {
            out.println("$ " + command);
            new Commands(false).parseCommand(List.of(command.split(" "))).run(Optional.empty(), out, state);
        }
        out.flush();
    }
}
