import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Apache Kafka's own clients as a peer: `consume`, `produce` or `transact`, then options. */
public final class KafkaPeer {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "RangeAssignor",
        "roundrobin", "RoundRobinAssignor",
        "sticky", "StickyAssignor",
        "cooperative-sticky", "CooperativeStickyAssignor");

    private KafkaPeer() {}

    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < args.length; i += 2) {
            options.put(args[i].substring(2), args[i + 1]);
        }
        switch (args[0]) {
            case "consume" -> new Consumer(options).run();
            case "produce" -> produce(options);
            case "transact" -> new Transactions(options).run();
            case "load" -> load(options);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    /** Loads the classes of both clients, without a broker. */
    private static void load(Map<String, String> options) throws Exception {
        options.putAll(Map.of(
            "group", "none", "client-id", "load", "topic", "none", "count", "0", "max", "0",
            "commit-every", "1", "session-timeout-ms", "6000", "heartbeat-interval-ms", "500",
            "assignor", "range"));
        produce(options);
        Consumer member = new Consumer(options);
        member.consumer.subscribe(List.of("none"), member);
        member.consumer.poll(Duration.ofMillis(300));
        member.consumer.close(CloseOptions.timeout(Duration.ZERO));
    }

    private static String version() throws IOException {
        Properties build = new Properties();
        try (var stream = KafkaConsumer.class.getResourceAsStream(
            "/kafka/kafka-version.properties")) {
            build.load(stream);
        }
        return build.getProperty("version");
    }

    private static void produce(Map<String, String> options) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", options.get("bootstrap"));
        config.put("client.id", options.get("client-id"));
        config.put("acks", options.getOrDefault("acks", "all"));
        config.put("linger.ms", "5");
        int start = Integer.parseInt(options.getOrDefault("start", "0"));
        int count = Integer.parseInt(options.get("count"));
        Map<String, Future<RecordMetadata>> sent = new LinkedHashMap<>();
        StringSerializer text = new StringSerializer();
        try (var producer = new KafkaProducer<>(config, text, text)) {
            Events.emit("ready", "\"version\": " + Events.text(version()));
            for (int n = start; n < start + count; n++) {
                String key = "k" + n;
                sent.put(key, producer.send(
                    new ProducerRecord<>(options.get("topic"), key, "v" + n)));
            }
            producer.flush();
            for (Map.Entry<String, Future<RecordMetadata>> each : sent.entrySet()) {
                RecordMetadata where = each.getValue().get();
                Events.record(
                    "produced", where.topic(), where.partition(), where.offset(), each.getKey());
            }
        }
        Events.emit("closed", "");
    }

    /** One member of a group that commits what it has printed. */
    private static final class Consumer implements ConsumerRebalanceListener {
        private final Map<String, String> options;
        private final KafkaConsumer<String, String> consumer;
        private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
        private final int commitEvery;
        private final long max;
        private int since = 0;
        private volatile boolean stopping = false;
        private volatile boolean closed = false;

        Consumer(Map<String, String> options) {
            this.options = options;
            this.commitEvery = Integer.parseInt(options.get("commit-every"));
            this.max = Long.parseLong(options.get("max"));
            Properties config = new Properties();
            config.put("bootstrap.servers", options.get("bootstrap"));
            config.put("group.id", options.get("group"));
            config.put("client.id", options.get("client-id"));
            config.put("auto.offset.reset", "earliest");
            config.put("enable.auto.commit", "false");
            if ("consumer".equals(options.get("group-protocol"))) {
                // The broker decides the rest.
                config.put("group.protocol", "consumer");
                config.put("group.remote.assignor", options.get("assignor"));
            } else {
                config.put("session.timeout.ms", options.get("session-timeout-ms"));
                config.put("heartbeat.interval.ms", options.get("heartbeat-interval-ms"));
                config.put("partition.assignment.strategy",
                    Arrays.stream(options.get("assignor").split(","))
                        .map(name -> "org.apache.kafka.clients.consumer." + ASSIGNORS.get(name))
                        .toList());
            }
            if (options.containsKey("instance-id")) {
                config.put("group.instance.id", options.get("instance-id"));
            }
            StringDeserializer text = new StringDeserializer();
            this.consumer = new KafkaConsumer<>(config, text, text);
        }

        void run() throws IOException {
            Thread running = Thread.currentThread();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                stopping = true;
                consumer.wakeup();
                try {
                    running.join(20_000);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
                // SIGTERM would otherwise be the status, orderly end or not.
                Runtime.getRuntime().halt(closed ? 0 : 1);
            }));
            consumer.subscribe(List.of(options.get("topic").split(",")), this);
            Events.emit("ready", "\"version\": " + Events.text(version()));
            long seen = 0;
            try {
                while (!stopping && (max == 0 || seen < max)) {
                    var polled = consumer.poll(Duration.ofMillis(200));
                    for (ConsumerRecord<String, String> record : polled) {
                        if (max != 0 && seen == max) {
                            break;
                        }
                        seen++;
                        take(record);
                    }
                    if (polled.isEmpty()) {
                        commit();
                    }
                }
            } catch (WakeupException asked) {
                // SIGTERM: leave in an orderly way below.
            }
            commit();
            consumer.close();
            Events.emit("closed", "");
            closed = true;
        }

        private void take(ConsumerRecord<String, String> record) {
            Events.record(
                "record", record.topic(), record.partition(), record.offset(), record.key());
            uncommitted.put(
                new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
            if (++since >= commitEvery) {
                commit();
            }
        }

        private void commit() {
            since = 0;
            if (uncommitted.isEmpty()) {
                return;
            }
            Map<TopicPartition, OffsetAndMetadata> offsets = Map.copyOf(uncommitted);
            uncommitted.clear();
            while (true) {
                try {
                    consumer.commitSync(offsets);
                    Events.committed(offsets);
                    return;
                } catch (WakeupException asked) {
                    // The wake-up was meant for poll(); commit all the same.
                    stopping = true;
                } catch (RebalanceInProgressException later) {
                    // What is still ours after the rebalance is committed then.
                    uncommitted.putAll(offsets);
                    return;
                } catch (RuntimeException refused) {
                    Events.emit("error", "\"message\": " + Events.text(refused.toString()));
                    return;
                }
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            Events.partitions("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commit();
            uncommitted.keySet().removeAll(partitions);
            Events.partitions("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            uncommitted.keySet().removeAll(partitions);
            Events.partitions("lost", partitions);
        }
    }
}
