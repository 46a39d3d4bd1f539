import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Counts items per window with one thread of Kafka Streams: a decoded event and an update of a RocksDB store each. */
public class Counts {
    record Event(String user, String item, long ts) {}

    static final ObjectReader EVENTS = new ObjectMapper().readerFor(Event.class);
    static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static long expected, windowMs, counted, sum, startNs, startCpuNs, commitsBefore;
    static KafkaStreams streams;
    static volatile boolean done;

    static class Count extends ContextualProcessor<String, Long, Void, Void> {
        private KeyValueStore<String, Long> counts;

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            super.init(context);
            counts = context.getStateStore("counts");
        }

        @Override
        public void process(Record<String, Long> event) {
            String key = event.key() + "@" + event.value() / windowMs;
            Long before = counts.get(key);
            long now = before == null ? 1 : before + 1;
            counts.put(key, now);
            sum += now;
            if (++counted == expected) {
                commitsBefore = commits();
                done = true;
                context().commit();
            }
        }
    }

    static Event decode(byte[] value) {
        if (startNs == 0) {
            startCpuNs = SYSTEM.getProcessCpuTime();
            startNs = System.nanoTime();
        }
        try {
            return EVENTS.readValue(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** How often the thread committed; a commit flushes the store and waits for its changelog. */
    static long commits() {
        return streams.metrics().entrySet().stream()
            .filter(one -> one.getKey().group().equals("stream-thread-metrics"))
            .filter(one -> one.getKey().name().equals("commit-total"))
            .mapToLong(one -> ((Double) one.getValue().metricValue()).longValue()).sum();
    }

    /** Arguments: broker, topic, events, state folder, milliseconds of a window, new name, "grouped" or "". */
    public static void main(String[] args) throws InterruptedException {
        expected = Long.parseLong(args[2]);
        windowMs = Long.parseLong(args[4]);
        Properties settings = new Properties();
        settings.putAll(Map.of(
            StreamsConfig.APPLICATION_ID_CONFIG, args[5],
            StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0],
            StreamsConfig.STATE_DIR_CONFIG, args[3],
            StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1,
            "auto.offset.reset", "earliest"));
        StreamsBuilder topology = new StreamsBuilder();
        var store = Stores.persistentKeyValueStore("counts"); // no slower than with a cache in front
        topology.addStateStore(Stores.keyValueStoreBuilder(store, Serdes.String(), Serdes.Long()));
        KStream<String, Long> items = topology
            .stream(args[1], Consumed.with(Serdes.String(), Serdes.ByteArray()))
            .filter((user, value) -> value != null) // a watermark
            .map((user, value) -> {
                Event event = decode(value);
                return KeyValue.pair(event.item(), event.ts());
            });
        if (args[6].equals("grouped")) {
            items = items.repartition(Repartitioned.with(Serdes.String(), Serdes.Long()));
        }
        items.process(Count::new, "counts");
        streams = new KafkaStreams(topology.build(), settings);
        streams.start();
        while (!done || commits() == commitsBefore) {
            Thread.sleep(2);
        }
        double wall = (System.nanoTime() - startNs) / 1e9;
        double cpu = (SYSTEM.getProcessCpuTime() - startCpuNs) / 1e9;
        String measured = "{\"wall_s\": %f, \"cpu_s\": %f, \"counted\": %d, \"running_sum\": %d}%n";
        System.out.printf(Locale.ROOT, measured, wall, cpu, counted, sum);
        System.out.flush();
        Runtime.getRuntime().halt(0); // stopping takes time, and nothing is left to be done
    }
}
