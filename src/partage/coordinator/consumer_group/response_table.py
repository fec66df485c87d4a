"""The response to each request in each state of a consumer group, for the documentation.

``tests/coordinator/consumer_group/test_response_table.py`` sends each request in each state. A
response that starts with the name of an error code is that error.
"""

from __future__ import annotations

#: The columns: the group does not exist, is Empty, or has members (in any state).
CONSUMER_COLUMNS = ("group does not exist", "Empty", "with members")

#: The responses of each request, by column. "A member" is one that the group would have.
CONSUMER_RESPONSES: dict[str, tuple[str, str, str]] = {
    "ConsumerGroupHeartbeat, epoch 0": (
        "the group is created; then as Empty",
        "the member is added",
        "the member is added, or gets its assignment again",
    ),
    "ConsumerGroupHeartbeat, epoch of a member": (
        "GROUP_ID_NOT_FOUND",
        "UNKNOWN_MEMBER_ID",
        "the member is reconciled; its session restarts",
    ),
    "ConsumerGroupHeartbeat, epoch -1": (
        "GROUP_ID_NOT_FOUND",
        "UNKNOWN_MEMBER_ID",
        "the member is removed",
    ),
    "ConsumerGroupHeartbeat, epoch -2": (
        "GROUP_ID_NOT_FOUND",
        "UNKNOWN_MEMBER_ID",
        "the static member keeps its partitions until its session ends",
    ),
    "ConsumerGroupDescribe": ("GROUP_ID_NOT_FOUND", "the description", "the description"),
    "OffsetCommit, with member and epoch": (
        "GROUP_ID_NOT_FOUND",
        "UNKNOWN_MEMBER_ID",
        "stored; STALE_MEMBER_EPOCH for each partition that the member did not have in its epoch",
    ),
    "OffsetCommit, without member and epoch": ("stored", "stored", "UNKNOWN_MEMBER_ID"),
    "TxnOffsetCommit, with member and epoch": (
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "stored as pending",
    ),
    "TxnOffsetCommit, without member and epoch": (
        "stored as pending",
        "stored as pending",
        "stored as pending",
    ),
    "OffsetFetch, with member and epoch": (
        "offset -1 for every partition",
        "UNKNOWN_MEMBER_ID",
        "the committed offsets",
    ),
    "OffsetFetch, without member and epoch": (
        "offset -1 for every partition",
        "the committed offsets",
        "the committed offsets",
    ),
    "OffsetDelete": (
        "GROUP_ID_NOT_FOUND",
        "removed",
        "removed, or GROUP_SUBSCRIBED_TO_TOPIC",
    ),
    "DeleteGroups": ("GROUP_ID_NOT_FOUND", "offsets and group are removed", "NON_EMPTY_GROUP"),
    "DescribeGroups": ("GROUP_ID_NOT_FOUND", "GROUP_ID_NOT_FOUND", "GROUP_ID_NOT_FOUND"),
    "JoinGroup, no member id": (
        "a classic group is created",
        "a classic group replaces the group and keeps its offsets",
        "the member is added and reconciled; its generation is its epoch",
    ),
    "SyncGroup": (
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID for a member with the consumer protocol; otherwise its assignment",
    ),
    "Heartbeat": (
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID for a member with the consumer protocol; otherwise its session restarts",
    ),
    "LeaveGroup": ("UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID", "the member is removed"),
}

#: The checks of a ConsumerGroupHeartbeat, in order.
CONSUMER_VALIDATIONS: tuple[str, ...] = (
    "blank member id (except in v0 at epoch 0, -2 and below), group id, instance id or rack id: "
    "INVALID_REQUEST",
    "epoch 0 without rebalance timeout or subscription, or with partitions; epoch -2 without "
    "instance id; any epoch below: INVALID_REQUEST",
    "unknown assignor: UNSUPPORTED_ASSIGNOR",
    "regular expression that is no valid RE2: INVALID_REGULAR_EXPRESSION",
    "topics not loaded yet: COORDINATOR_LOAD_IN_PROGRESS",
    "epoch other than 0 and a classic group, or a classic group that cannot be upgraded: "
    "GROUP_ID_NOT_FOUND. An empty classic group is replaced, and keeps its offsets",
    "member id and instance id are new, and the group is full: GROUP_MAX_SIZE_REACHED",
    "instance id of a member that did not leave: UNRELEASED_INSTANCE_ID at epoch 0, otherwise "
    "FENCED_INSTANCE_ID; unknown instance id or member id: UNKNOWN_MEMBER_ID",
    "greater epoch; or smaller one, except for the previous epoch with no partition that is not "
    "assigned: FENCED_MEMBER_EPOCH",
)

#: The deliberate differences of consumer groups from Apache Kafka 4.4, each with the reason.
CONSUMER_DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "The assignor runs outside the state machine. Only the heartbeat that caused the "
        "computation waits for it.",
        "A slow assignor does not delay other groups and members. In Kafka it blocks the partition "
        "of `__consumer_offsets`.",
    ),
    (
        "If an assignor fails, the previous target stays in force, and the heartbeat succeeds. The "
        "error and the name of the assignor become a group event. The next heartbeat after 1 s "
        "computes again.",
        "In Kafka the heartbeat gets UNKNOWN_SERVER_ERROR, and consumers stop.",
    ),
    (
        "A static member can repeat its first heartbeat under the same member id.",
        "Its response may have been lost. Kafka answers UNRELEASED_INSTANCE_ID, which stops "
        "consumers.",
    ),
    (
        "A static member that returns keeps the epochs of its partitions.",
        "In Kafka they become 0, so commits with any older epoch are accepted.",
    ),
    (
        "A new regular expression is resolved at once.",
        "In Kafka it waits if the group resolved another one in the last 10 s.",
    ),
    (
        "The order of `group.consumer.assignors` decides a tie of votes for an assignor.",
        "In Kafka the iteration order of a hash map does.",
    ),
    (
        "The hash of the subscribed topics differs from Kafka's.",
        "Only the broker that stored it compares it. A log of Kafka's gets a new epoch at the "
        "first heartbeat.",
    ),
    (
        "An upgrade before a generation has its assignment takes over the partitions that members "
        "reported to own.",
        "Kafka takes over the assignments of the previous generation, which eager members have "
        "given up.",
    ),
    (
        "After an upgrade, partitions that a member reported to own and that no assignment "
        "contains stay with it until its next JoinGroup.",
        "Kafka gives them to other members at once, while a cooperative member still reads them.",
    ),
    (
        "After an upgrade, a member must give up partitions of topics without a subscription: a "
        "static member that returned with other topics still has them.",
        "In Kafka SyncGroup returns them until the next target, and the member joins again without "
        "a pause.",
    ),
    (
        "An upgrade of a group that rebalances raises the epoch, so that all members get "
        "partitions.",
        "If a static member upgrades it without another subscription, Kafka does not. New members "
        "then have no partitions until something else changes.",
    ),
    (
        "An upgrade that is refused changes nothing.",
        "If the group is full or has assignments with user data, Kafka answers the requests that "
        "wait with REBALANCE_IN_PROGRESS.",
    ),
    (
        "A downgrade stores the partitions that members may still read.",
        "Kafka stores the targets, so an upgrade that follows could give a partition a second "
        "reader.",
    ),
    (
        "SyncGroup of a classic member of a consumer group may name each protocol that the member "
        "lists.",
        "Kafka accepts only the first, so an upgrade in a change of assignors stops consumers.",
    ),
    (
        "A group in its first generation can be upgraded.",
        "In Kafka the heartbeat gets UNKNOWN_SERVER_ERROR until a protocol is selected.",
    ),
    (
        "A group whose leader assigned a partition to several members is not upgraded.",
        "In Kafka the heartbeat gets UNKNOWN_SERVER_ERROR.",
    ),
    (
        "Heartbeats of classic members of a consumer group see changed topics, and cause a target "
        "that is due.",
        "In Kafka only JoinGroup and heartbeats of the consumer protocol do.",
    ),
    (
        "A downgrade by a static member rebalances the group.",
        "In Kafka no member knows that it leads, so none sees new partitions. Members of an older "
        "epoch get ILLEGAL_GENERATION, and lose their partitions.",
    ),
)

#: The changes of a group's protocol while it has members. Each row has the cause, the condition
#: (besides the policy) and the effect.
MIGRATIONS: tuple[tuple[str, str, str], ...] = (
    (
        "ConsumerGroupHeartbeat, epoch 0, for a classic group that is not Empty",
        "policy `upgrade` or `bidirectional`; protocol type `consumer`; at most "
        "`group.consumer.max.size` members; all subscriptions and assignments can be read, and no "
        "assignment has user data",
        "upgrade: members keep their assignments, and the generation becomes the epoch; requests "
        "that wait get REBALANCE_IN_PROGRESS; other partitions that a member reported to own stay "
        "with it until its next JoinGroup",
    ),
    (
        "the last member with the consumer protocol leaves, expires or is fenced",
        "policy `downgrade` or `bidirectional`; members with the classic protocol remain, at most "
        "`group.max.size`, whose metadata fits into one record",
        "downgrade: the epoch becomes the generation, and a rebalance starts",
    ),
    (
        "a static member with the classic protocol replaces the last member with the consumer "
        "protocol",
        "the same",
        "downgrade: the member waits for the rebalance",
    ),
    (
        "JoinGroup for a consumer group with members",
        "any policy but `disabled`; protocol type `consumer`; a protocol that all other members "
        "with the classic protocol list",
        "the member joins the consumer group; otherwise INCONSISTENT_GROUP_PROTOCOL",
    ),
)
