import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Commits a transaction, aborts one, and is fenced by a successor, which commits. */
final class Transactions {
    private final Map<String, String> options;

    Transactions(Map<String, String> options) {
        this.options = options;
    }

    /** Prints the exception of the fenced producer. */
    void run() throws Exception {
        KafkaProducer<String, String> first = producer();
        send(first, "committed");
        first.commitTransaction();
        send(first, "aborted");
        first.abortTransaction();
        send(first, "fenced");
        try (KafkaProducer<String, String> second = producer()) {
            send(second, "successor");
            second.commitTransaction();
        }
        try {
            first.commitTransaction();
            throw new IllegalStateException("the first producer was not fenced");
        } catch (KafkaException refusal) {
            System.out.println(refusal.getClass().getSimpleName());
        } finally {
            first.close(Duration.ZERO);
        }
    }

    private KafkaProducer<String, String> producer() {
        Properties config = new Properties();
        config.put("bootstrap.servers", options.get("bootstrap"));
        config.put("transactional.id", options.get("id"));
        StringSerializer text = new StringSerializer();
        KafkaProducer<String, String> producer = new KafkaProducer<>(config, text, text);
        producer.initTransactions();
        return producer;
    }

    /** Begins a transaction with a record in each of three partitions. */
    private void send(KafkaProducer<String, String> producer, String value) throws Exception {
        producer.beginTransaction();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int partition = 0; partition < 3; partition++) {
            sent.add(producer.send(new ProducerRecord<>(
                options.get("topic"), partition, null, value + "-" + partition)));
        }
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
    }
}
