import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaUtils;

/**
 * Records what standard input says, and prints how long each record is to be throttled, one number per line.
 * A line: number of the client, "rate", "strict" or "permissive", quota, windows, seconds of a window, time, value.
 */
public class Quotas {
    public static void main(String[] arguments) throws Exception {
        Metrics metrics = new Metrics();
        Map<String, Sensor> sensors = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder printed = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Sensor sensor = sensors.computeIfAbsent(words[0], name -> newSensor(metrics, name, words));
            printed.append(record(sensor, words[1], Double.parseDouble(words[6]), Long.parseLong(words[5]))).append('\n');
        }
        System.out.print(printed);
        metrics.close();
    }

    private static Sensor newSensor(Metrics metrics, String name, String[] words) {
        MetricConfig config = new MetricConfig()
            .quota(new Quota(Double.parseDouble(words[2]), true))
            .samples(Integer.parseInt(words[3]))
            .timeWindow(Long.parseLong(words[4]), TimeUnit.SECONDS);
        MeasurableStat stat = words[1].equals("rate") ? new Rate() : new TokenBucket();
        Sensor sensor = metrics.sensor(name);
        sensor.add(new MetricName(name, "quota", "", Map.of()), stat, config);
        return sensor;
    }

    private static long record(Sensor sensor, String kind, double value, long now) {
        try {
            if (kind.equals("strict")) {
                sensor.checkQuotas(now);
                sensor.record(value, now, false);
            } else {
                sensor.record(value, now, value >= 0);
            }
            return 0;
        } catch (QuotaViolationException violated) {
            return kind.equals("rate")
                ? QuotaUtils.throttleTime(violated, now)
                : ControllerMutationQuotaManager.throttleTimeMs(violated);
        }
    }
}
