import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;

/**
 * A rack-aware assignor for Kafka's broker, whose own assignors ignore racks (KIP-848): each
 * partition goes to the member with the fewest partitions, of those in a rack of its replicas.
 */
public final class RackAssignor implements ConsumerGroupPartitionAssignor {

    @Override
    public String name() {
        return "rack";
    }

    @Override
    public GroupAssignment assign(GroupSpec group, SubscribedTopicDescriber topics) {
        Map<String, Map<Uuid, Set<Integer>>> shares = new HashMap<>();
        Map<String, Integer> counts = new HashMap<>();
        Set<Uuid> subscribed = new HashSet<>();
        for (String member : group.memberIds()) {
            shares.put(member, new HashMap<>());
            counts.put(member, 0);
            subscribed.addAll(group.memberSubscription(member).subscribedTopicIds());
        }
        for (Uuid topic : subscribed) {
            for (int partition = 0; partition < topics.numPartitions(topic); partition++) {
                Set<String> racks = topics.racksForPartition(topic, partition);
                String owner = owner(group, topic, racks, counts);
                counts.merge(owner, 1, Integer::sum);
                shares.get(owner).computeIfAbsent(topic, ignored -> new HashSet<>()).add(partition);
            }
        }
        Map<String, MemberAssignment> assignments = new HashMap<>();
        shares.forEach((member, share) -> assignments.put(member, () -> share));
        return new GroupAssignment(assignments);
    }

    private static String owner(
            GroupSpec group, Uuid topic, Set<String> racks, Map<String, Integer> counts) {
        List<String> subscribers = new ArrayList<>(group.memberIds());
        subscribers.removeIf(
                member -> !group.memberSubscription(member).subscribedTopicIds().contains(topic));
        List<String> near = new ArrayList<>(subscribers);
        near.removeIf(
                member -> {
                    Optional<String> rack = group.memberSubscription(member).rackId();
                    return rack.isEmpty() || !racks.contains(rack.get());
                });
        Comparator<String> byCount = Comparator.comparingInt(counts::get);
        Comparator<String> order = byCount.thenComparing(Comparator.naturalOrder());
        return (near.isEmpty() ? subscribers : near).stream().min(order).orElseThrow();
    }
}
