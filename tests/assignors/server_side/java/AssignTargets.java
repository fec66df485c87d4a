import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** The assignors of Kafka's broker: groups come in line by line, targets go out the same way. */
public final class AssignTargets {
    private static final Map<Uuid, Integer> TOPICS = new HashMap<>();
    private static final Map<String, MemberSubscriptionAndAssignmentImpl> MEMBERS =
        new LinkedHashMap<>();
    private static final Map<Uuid, Map<Integer, String>> OWNERS = new HashMap<>();

    private AssignTargets() {}

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "topic" -> TOPICS.put(id(words[1]), Integer.parseInt(words[2]));
                case "member" -> member(words);
                case "assign" -> assign(words[1], words[2]);
                case "time" -> time(words[1], words[2], Integer.parseInt(words[3]));
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static Uuid id(String number) {
        return new Uuid(1, Long.parseLong(number));
    }

    /** Member, instance, topics, previous target. */
    private static void member(String[] words) {
        Set<Uuid> topics = new HashSet<>();
        for (String number : words[3].split(",")) {
            if (!number.isEmpty()) {
                topics.add(id(number));
            }
        }
        Map<Uuid, Set<Integer>> target = new HashMap<>();
        for (String word : words[4].split(",")) {
            if (!word.isEmpty()) {
                String[] pair = word.split(":");
                int partition = Integer.parseInt(pair[1]);
                target.computeIfAbsent(id(pair[0]), topic -> new TreeSet<>()).add(partition);
                OWNERS.computeIfAbsent(id(pair[0]), topic -> new HashMap<>())
                    .put(partition, words[1]);
            }
        }
        Optional<String> instance = Optional.of(words[2]).filter(text -> !text.equals("-"));
        MEMBERS.put(words[1], new MemberSubscriptionAndAssignmentImpl(
            Optional.empty(), instance, topics, new Assignment(target)));
    }

    /** Members and CPU time of each of so many rounds in nanoseconds, of all threads. */
    private static void time(String name, String type, int rounds) throws Exception {
        OperatingSystemMXBean system =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        GroupSpecImpl group = new GroupSpecImpl(MEMBERS, SubscriptionType.valueOf(type), OWNERS);
        for (int round = 0; round < rounds; round++) {
            long before = system.getProcessCpuTime();
            int members = assignor(name).assign(group, topics()).members().size();
            System.out.println(members + "\t" + (system.getProcessCpuTime() - before));
        }
        end();
    }

    private static ConsumerGroupPartitionAssignor assignor(String name) {
        return name.equals("range") ? new RangeAssignor() : new UniformAssignor();
    }

    private static SubscribedTopicDescriber topics() {
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return TOPICS.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
    }

    private static void assign(String name, String type) throws Exception {
        GroupSpecImpl group = new GroupSpecImpl(MEMBERS, SubscriptionType.valueOf(type), OWNERS);
        new TreeMap<>(assignor(name).assign(group, topics()).members()).forEach((member, its) -> {
            StringBuilder line = new StringBuilder(member).append('\t');
            its.partitions().forEach((topic, partitions) -> partitions.forEach(partition ->
                line.append(topic.getLeastSignificantBits())
                    .append(':').append(partition).append(',')));
            System.out.println(line);
        });
        end();
    }

    private static void end() {
        System.out.println("end");
        TOPICS.clear();
        MEMBERS.clear();
        OWNERS.clear();
    }
}
