import java.io.PrintStream;
import java.util.Collection;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** What happens, one JSON object a line; `interop/events.py` reads them. */
final class Events {
    private static final PrintStream OUT = System.out;

    private Events() {}

    static void emit(String event, String rest) {
        double at = System.currentTimeMillis() / 1000.0;
        OUT.println("{\"event\": \"" + event + "\", \"at\": " + String.format("%.3f", at)
            + (rest.isEmpty() ? "" : ", " + rest) + "}");
        OUT.flush();
    }

    static void partitions(String event, Collection<TopicPartition> partitions) {
        StringBuilder list = new StringBuilder();
        for (TopicPartition partition : partitions) {
            list.append(list.isEmpty() ? "" : ", ")
                .append("[" + text(partition.topic()) + ", " + partition.partition() + "]");
        }
        emit(event, "\"partitions\": [" + list + "]");
    }

    static void record(String event, String topic, int partition, long offset, String key) {
        emit(event, "\"topic\": " + text(topic) + ", \"partition\": " + partition
            + ", \"offset\": " + offset + ", \"key\": " + text(key));
    }

    static void committed(Map<TopicPartition, OffsetAndMetadata> offsets) {
        StringBuilder list = new StringBuilder();
        offsets.forEach((partition, offset) -> list.append(list.isEmpty() ? "" : ", ")
            .append("[" + text(partition.topic()) + ", " + partition.partition() + ", "
                + offset.offset() + "]"));
        emit("committed", "\"offsets\": [" + list + "]");
    }

    static String text(String value) {
        if (value == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
