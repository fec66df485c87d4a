import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Apache Kafka's own assignors: groups come in line by line, assignments go out the same way. */
public final class Assign {
    private static final Map<String, Node> NODES = new HashMap<>();
    private static final List<PartitionInfo> PARTITIONS = new ArrayList<>();
    private static final Map<String, Subscription> MEMBERS = new LinkedHashMap<>();

    private Assign() {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "topic" -> topic(words[1], words[2].isEmpty() ? 0 : 1, words[2].split(";", -1));
                case "member" -> member(words);
                case "assign" -> assign(assignor(words[1]));
                case "time" -> time(assignor(words[1]), Integer.parseInt(words[2]));
                case "tell" -> tell(assignor(words[1]), Integer.parseInt(words[2]), words[3]);
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    /** For each partition the racks of its replicas, parted by commas. */
    private static void topic(String name, int from, String[] racks) {
        for (int partition = 0; from == 1 && partition < racks.length; partition++) {
            List<Node> replicas = new ArrayList<>();
            for (String rack : racks[partition].split(",")) {
                String known = rack.equals("-") ? null : rack;
                replicas.add(NODES.computeIfAbsent(
                    rack, r -> new Node(NODES.size(), "host", 1, known)));
            }
            Node[] nodes = replicas.toArray(new Node[0]);
            PARTITIONS.add(new PartitionInfo(name, partition, nodes[0], nodes, nodes));
        }
    }

    /** Member, instance, rack, generation, topics, owned partitions, user data. */
    private static void member(String[] words) {
        List<String> topics = words[5].isEmpty() ? List.of() : List.of(words[5].split(","));
        ByteBuffer data = words[7].isEmpty()
            ? null : ByteBuffer.wrap(HexFormat.of().parseHex(words[7]));
        Subscription subscription = new Subscription(topics, data, partitions(words[6]),
            Integer.parseInt(words[4]), Optional.of(words[3]).filter(rack -> !rack.equals("-")));
        subscription.setGroupInstanceId(Optional.of(words[2]).filter(id -> !id.equals("-")));
        MEMBERS.put(words[1], subscription);
    }

    private static List<TopicPartition> partitions(String text) {
        List<TopicPartition> found = new ArrayList<>();
        for (String word : text.split(",")) {
            int colon = word.lastIndexOf(':');
            if (colon > 0) {
                found.add(new TopicPartition(
                    word.substring(0, colon), Integer.parseInt(word.substring(colon + 1))));
            }
        }
        return found;
    }

    private static Cluster cluster() {
        return new Cluster("cluster", NODES.values(), PARTITIONS,
            Collections.emptySet(), Collections.emptySet());
    }

    /** CPU time of each of so many rounds in nanoseconds, of all threads of this process. */
    private static void time(ConsumerPartitionAssignor assignor, int rounds) {
        OperatingSystemMXBean system =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        Cluster cluster = cluster();
        for (int round = 0; round < rounds; round++) {
            long before = system.getProcessCpuTime();
            int members =
                assignor.assign(cluster, new GroupSubscription(MEMBERS)).groupAssignment().size();
            long took = system.getProcessCpuTime() - before;
            System.out.println(members + "\t" + took);
        }
        System.out.println("end");
        PARTITIONS.clear();
        MEMBERS.clear();
    }

    private static void assign(ConsumerPartitionAssignor assignor) {
        Cluster cluster = cluster();
        Map<String, Assignment> given =
            assignor.assign(cluster, new GroupSubscription(MEMBERS)).groupAssignment();
        new TreeMap<>(given).forEach((member, its) -> {
            StringBuilder line = new StringBuilder(member).append('\t');
            for (TopicPartition p : its.partitions()) {
                line.append(p.topic()).append(':').append(p.partition()).append(',');
            }
            System.out.println(line);
        });
        System.out.println("end");
        PARTITIONS.clear();
        MEMBERS.clear();
    }

    /** The user data of a member that was given these partitions. */
    private static void tell(ConsumerPartitionAssignor assignor, int generation, String owned) {
        assignor.onAssignment(new Assignment(partitions(owned)),
            new ConsumerGroupMetadata("group", generation, "member", Optional.empty()));
        ByteBuffer data = assignor.subscriptionUserData(Set.of());
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        System.out.println(HexFormat.of().formatHex(bytes));
    }
}
