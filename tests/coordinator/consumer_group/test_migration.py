"""Groups that change their protocol while they have members."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.events import (
    Commit,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    OffsetToCommit,
    Protocol,
    Sync,
    Ticket,
)
from partage.coordinator.group import Group
from partage.coordinator.member import record_size
from partage.coordinator.states import GroupState
from partage.model.errors import ErrorCode
from partage.model.settings import ConsumerGroupSettings, MigrationPolicy
from partage.wire.consumer_protocol import Assignment, decode_assignment, encode_assignment

from .harness import ConsumerHarness, joining, parts, topic, topic_id
from .mixed_group import Partition, listed, subscription, unlisted

EVERY: frozenset[Partition] = frozenset(("t", number) for number in range(6))


def migrating(
    policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL, members_max: int = 100
) -> ConsumerHarness:
    """Return a shard whose policy is given."""
    return ConsumerHarness(
        settings=ConsumerGroupSettings(
            assignment_interval_ms=0, migration_policy=policy, members_max=members_max
        )
    )


def request(
    harness: ConsumerHarness, event_type: Any, *, ticket: Ticket | None = None, **fields: object
) -> Any:
    """Send a request of the classic protocol; return its reply, None if it waits."""
    ticket = harness.ticket() if ticket is None else ticket
    base = {"at_ms": harness.now_ms, "reply_to": ticket, "group_id": "g"}
    harness.handle(event_type(**base, **fields))
    return harness.replies.get(ticket)


def join(harness: ConsumerHarness, member_id: str, /, **fields: Any) -> Any:
    """Send the JoinGroup of a member, whose id the broker knows or generates."""
    group = harness.shard.groups.get("g")
    is_known = group is not None and member_id in group.members_by_id
    base: dict[str, Any] = {
        "member_id": member_id if is_known else "",
        "generated_member_id": member_id,
        "client_id": member_id,
        "client_host": "/host",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": (
            Protocol("range", subscription("t", owned=fields.pop("owned", EVERY - EVERY))),
        ),
        "must_rejoin_with_id": False,
    }
    return request(harness, Join, **{**base, **fields})


def sync(harness: ConsumerHarness, member_id: str, generation: int, **fields: Any) -> Any:
    """Send the SyncGroup of a member."""
    return request(harness, Sync, member_id=member_id, generation=generation, **fields)


def synced(harness: ConsumerHarness, member_id: str, generation: int) -> set[int]:
    """Return the partitions of topic t that a member gets with SyncGroup."""
    reply = sync(harness, member_id, generation)
    assert not reply.error
    return {
        number for _, number in unlisted(decode_assignment(reply.assignment).assigned_partitions)
    }


def beat(harness: ConsumerHarness, member_id: str, generation: int) -> ErrorCode:
    """Send the Heartbeat of a member; return the error."""
    reply = request(harness, Heartbeat, member_id=member_id, generation=generation)
    return reply.error  # type: ignore[no-any-return]


def start_classic(harness: ConsumerHarness, user_data: bytes | None = None, **fields: Any) -> None:
    """Form a stable classic group of member P, which has all partitions."""
    join(harness, "P", **fields)
    harness.advance(3_000)
    given = Assignment(assigned_partitions=listed(EVERY), user_data=user_data)
    sync(harness, "P", 1, assignments={"P": encode_assignment(given)})
    assert classic_group(harness).state is GroupState.STABLE


def classic_group(harness: ConsumerHarness) -> Group:
    """Return the group, which has the classic protocol."""
    group = harness.shard.groups["g"]
    assert isinstance(group, Group)
    return group


def upgraded(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> ConsumerHarness:
    """Return a stable group of P with the classic protocol, and A with the consumer protocol."""
    harness = migrating(policy)
    start_classic(harness)
    harness.join("A", "t")
    join(harness, "P")
    synced(harness, "P", 2)
    harness.beat("A", owned={})
    assert harness.epochs == ("Stable", 2, 2)
    return harness


def restart_with(harness: ConsumerHarness, **fields: Any) -> None:
    """Restart the shard with other settings."""
    harness.settings = msgspec.structs.replace(harness.settings, **fields)
    harness.restart()


# Upgrade.


def test_consumer_that_joins_a_classic_group_upgrades_it_with_one_reader() -> None:
    harness = migrating()
    start_classic(harness)
    assert harness.join("A", "t").assignment == {}
    assert harness.group.members["P"].assignment.assigned.keys() == parts(t=(0,)).keys()
    assert beat(harness, "P", 1) is ErrorCode.REBALANCE_IN_PROGRESS
    reply = join(harness, "P")
    assert (reply.generation, reply.protocol, reply.leader) == (2, "range", "")
    kept = synced(harness, "P", 2)
    assert beat(harness, "P", 2) is ErrorCode.NONE
    (rest,) = harness.beat("A", owned={}).assignment.values()  # type: ignore[union-attr]
    assert kept | set(rest) == set(range(6))
    assert not kept & set(rest)


def test_upgrade_keeps_offsets_and_accepts_commits_of_the_old_generation() -> None:
    harness = migrating()
    start_classic(harness)
    offsets = (OffsetToCommit(topic="t", partition=0, offset=5),)
    request(harness, Commit, member_id="P", generation=1, offsets=offsets)
    harness.join("A", "t")
    later = (OffsetToCommit(topic="t", partition=0, offset=6),)
    reply = request(harness, Commit, member_id="P", generation=1, offsets=later)
    assert reply.errors == (ErrorCode.NONE,)
    newer = request(harness, Commit, member_id="P", generation=9, offsets=later)
    assert newer.errors == (ErrorCode.ILLEGAL_GENERATION,)
    found = request(harness, FetchOffsets, partitions=(("t", 0),)).offsets
    assert found[0].offset == 6


def test_upgrade_answers_parked_requests_with_rebalance_in_progress() -> None:
    harness = migrating()
    start_classic(harness)
    waiting = harness.ticket()
    join(harness, "Q", ticket=waiting)
    harness.join("A", "t")
    assert harness.replies[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert {"A", "P", "Q"} == harness.group.members.keys()


def test_upgrade_before_the_first_assignment_covers_all_partitions() -> None:
    harness = migrating()
    join(harness, "P")
    harness.join("A")  # subscribes to nothing, and raises no epoch
    assert harness.group.members.keys() == {"P", "A"}
    reply = join(harness, "P")
    assert synced(harness, "P", reply.generation) == set(range(6))


def test_upgrade_while_a_leader_assigns_keeps_the_partitions_that_members_own() -> None:
    harness = migrating()
    start_classic(harness)
    join(harness, "P", owned=EVERY)
    assert classic_group(harness).state is GroupState.COMPLETING_REBALANCE
    assert harness.join("A", "t").assignment == {}


def cooperative(
    owned: frozenset[Partition] = frozenset(), generation: int = -1
) -> tuple[Protocol, ...]:
    """Return the protocols of a cooperative member."""
    return (Protocol("cooperative", subscription("t", owned=owned, generation=generation)),)


def test_upgrade_after_an_interrupted_assignment_keeps_owned_partitions() -> None:
    harness = migrating()
    start_classic(harness, protocols=cooperative())
    join(harness, "Q", protocols=cooperative())
    join(harness, "P", protocols=cooperative(EVERY, 1))
    assert classic_group(harness).state is GroupState.COMPLETING_REBALANCE
    join(harness, "R", protocols=cooperative())  # before the leader's SyncGroup
    assert classic_group(harness).state is GroupState.PREPARING_REBALANCE
    assert harness.join("A", "t").assignment == {}
    assert harness.group.members["P"].assignment.assigned.keys() == parts(t=(0,)).keys()


def test_upgrade_takes_back_partitions_of_a_topic_without_subscription() -> None:
    """A static member that returns with other topics gets its old partitions in a classic group.

    With them it would join again at once, and again after each SyncGroup until the next target.
    """
    harness = ConsumerHarness(topics={"t": topic("t", 6), "u": topic("u", 1)})
    join(harness, "P")
    harness.advance(3_000)
    given = Assignment(assigned_partitions=listed(EVERY | {("u", 0)}))
    sync(harness, "P", 1, assignments={"P": encode_assignment(given)})
    assert harness.join("A", "t").assignment == {}
    assignment = harness.group.members["P"].assignment
    assert assignment.assigned.keys() == parts(t=(0,)).keys()
    assert assignment.pending_revocation.keys() == parts(u=(0,)).keys()


def test_upgrade_leaves_partitions_to_a_member_until_it_gave_them_up() -> None:
    kept = frozenset(("t", number) for number in range(3))
    harness = migrating()
    start_classic(harness, protocols=cooperative())
    join(harness, "Q", protocols=cooperative())
    join(harness, "P", protocols=cooperative(EVERY, 1))
    given = encode_assignment(Assignment(assigned_partitions=listed(kept)))
    sync(harness, "P", 2, assignments={"P": given})
    assert harness.join("A", "t").assignment == {}
    assert harness.group.holder(topic_id("t"), 5) == "P"
    assert beat(harness, "P", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.beat("A", owned={}).assignment is None
    join(harness, "P", protocols=cooperative(kept, 2))
    assert harness.group.holder(topic_id("t"), 5) != "P"


@pytest.mark.parametrize("restarts", [False, True])
def test_upgrade_after_a_downgrade_waits_until_members_gave_up_partitions(
    restarts: bool,
) -> None:
    harness = migrating()
    start_classic(harness, protocols=cooperative())
    harness.join("A", "t")
    reply = join(harness, "P", protocols=cooperative(EVERY, 1))
    assert len(synced(harness, "P", reply.generation)) == 3  # it must give up the others
    harness.leave("A")
    if restarts:
        harness.restart()
    assert harness.join("B", "t").assignment == {}
    held = [harness.group.holder(topic_id("t"), number) for number in range(6)]
    assert held == ["P"] * 6


@pytest.mark.parametrize("state", ["stable", "joining", "assigning"])
def test_coordinator_that_takes_over_after_an_upgrade_has_the_whole_group(state: str) -> None:
    harness = migrating()
    start_classic(harness)
    if state == "joining":
        join(harness, "Q")
    elif state == "assigning":
        join(harness, "P", owned=EVERY)
    harness.join("A", "t")
    harness.restart()
    assert isinstance(harness.shard.groups["g"], ConsumerGroup)
    assert beat(harness, "P", harness.group.members["P"].epoch) is not ErrorCode.UNKNOWN_MEMBER_ID
    generation = join(harness, "P").generation
    kept = synced(harness, "P", generation)
    gained = harness.beat("A", owned={}).assignment or {}
    assert not kept & {number for numbers in gained.values() for number in numbers}


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_policy_without_upgrades_refuses_the_consumer(policy: MigrationPolicy) -> None:
    harness = migrating(policy)
    start_classic(harness)
    reply = harness.join("A", "t")
    assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert (reply.error_message or "").endswith("because online upgrade is disabled.")
    assert beat(harness, "P", 1) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"protocol_type": "connect"}, "does not use the consumer embedded protocol."),
        ({"protocols": (Protocol("range", b"\0"),)}, "consumer protocol is malformed."),
        ({"user_data": b"mine"}, "before re-attempting the upgrade."),
    ],
)
def test_incompatible_classic_group_is_not_upgraded(fields: dict[str, Any], why: str) -> None:
    harness = migrating()
    start_classic(harness, **fields)
    reply = harness.join("A", "t")
    assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert (reply.error_message or "").endswith(why)
    assert beat(harness, "P", 1) is ErrorCode.NONE


def test_full_classic_group_is_not_upgraded() -> None:
    harness = migrating(members_max=1)
    start_classic(harness)
    assert harness.join("A", "t").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert beat(harness, "P", 1) is ErrorCode.NONE


def test_static_member_upgrades_a_full_classic_group() -> None:
    harness = migrating(members_max=1)
    start_classic(harness, instance_id="i")
    assert harness.join("A", "t", instance_id="j").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.join("A", "t", instance_id="i").assignment == parts(t=range(6))
    assert harness.group.members.keys() == {"A"}


def test_full_classic_group_that_cannot_be_upgraded_gets_the_reason() -> None:
    harness = migrating(MigrationPolicy.DOWNGRADE, members_max=1)
    start_classic(harness)
    reply = harness.join("A", "t")
    assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert (reply.error_message or "").endswith("because online upgrade is disabled.")


def test_classic_group_above_the_maximum_is_not_upgraded() -> None:
    harness = migrating(members_max=1)
    start_classic(harness)
    parked = harness.ticket()
    join(harness, "Q", ticket=parked)
    reply = harness.join("A", "t")
    assert (reply.error, reply.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Cannot upgrade classic group g to consumer group because the group size exceeds the "
        "consumer group maximum size.",
    )
    assert harness.join("P", "t").error is ErrorCode.GROUP_ID_NOT_FOUND  # with a member's id, too
    assert classic_group(harness).state is GroupState.PREPARING_REBALANCE
    assert parked not in harness.replies


# Members with the classic protocol.


def test_new_classic_member_must_send_join_group_again_with_its_id() -> None:
    harness = migrating()
    harness.join("A", "t")
    refused = join(harness, "P", must_rejoin_with_id=True)
    assert (refused.error, refused.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "P")
    assert harness.group.members.keys() == {"A"}
    assert harness.epochs == ("Stable", 2, 2)
    accepted = join(harness, "?", member_id="P", must_rejoin_with_id=True)
    assert (accepted.error, accepted.member_id) == (ErrorCode.NONE, "P")
    static = join(harness, "Q", must_rejoin_with_id=True, instance_id="i")
    assert (static.error, static.member_id) == (ErrorCode.NONE, "Q")


def test_static_classic_member_returns_to_a_full_group() -> None:
    harness = migrating(members_max=2)
    harness.join("A", "t")
    join(harness, "P", instance_id="i")
    assert join(harness, "Q").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    fenced = join(harness, "?", member_id="Q", instance_id="i")
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
    assert join(harness, "Q", instance_id="i").error is ErrorCode.NONE
    assert harness.group.members.keys() == {"A", "Q"}


def test_group_that_is_refused_a_member_gives_out_no_id() -> None:
    harness = migrating(members_max=1)
    harness.join("A", "t")
    reply = join(harness, "P", must_rejoin_with_id=True)
    assert (reply.error, reply.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_mixed_group_keeps_its_members_when_migration_is_disabled() -> None:
    harness = upgraded()
    disabled = ConsumerGroupSettings(
        assignment_interval_ms=0, migration_policy=MigrationPolicy.DISABLED
    )
    restart_with(harness, consumer=disabled)
    assert harness.epochs == ("Stable", 2, 2)
    assert beat(harness, "P", 2) is ErrorCode.NONE
    assert synced(harness, "P", 2) == {3, 4, 5}
    assert harness.beat("A").error is ErrorCode.NONE
    for member_id in ("P", "Q"):
        assert join(harness, member_id).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert beat(harness, "P", 2) is ErrorCode.NONE
    harness.leave("A")
    assert harness.group.members.keys() == {"P"}  # no downgrade
    assert harness.join("B", "t").error is ErrorCode.NONE
    assert beat(harness, "P", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    for member_id in ("P", "B"):
        request(harness, Leave, members=(LeavingMember(member_id=member_id),))
    join(harness, "Q")  # it starts a new group
    assert list(classic_group(harness).members) == ["Q"]


def test_classic_member_joins_a_consumer_group_unless_migration_is_disabled() -> None:
    harness = migrating(MigrationPolicy.DISABLED)
    harness.join("A", "t")
    assert join(harness, "P").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    harness = migrating(MigrationPolicy.UPGRADE)
    harness.join("A", "t")
    assert join(harness, "P").generation == 3


def ranked(*names: str) -> tuple[Protocol, ...]:
    """Return protocols in the order of preference."""
    return tuple(Protocol(name, subscription("t")) for name in names)


def test_sync_group_may_name_each_protocol_that_the_member_lists() -> None:
    harness = migrating()
    join(harness, "Q", protocols=ranked("cooperative"))
    join(harness, "P", protocols=ranked("range", "cooperative"))
    harness.advance(10_000)
    assert classic_group(harness).protocol == "cooperative"
    harness.join("A")  # subscribes to nothing, and raises no epoch
    named = {"protocol_type": "consumer", "protocol": "cooperative"}
    assert sync(harness, "P", 1, **named).error is ErrorCode.NONE
    assert sync(harness, "P", 1, **named | {"protocol": "range"}).error is ErrorCode.NONE
    other = named | {"protocol": "roundrobin"}
    assert sync(harness, "P", 1, **other).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = named | {"protocol_type": "connect"}
    assert sync(harness, "P", 1, **other).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_member_that_does_not_sync_or_rejoin_in_time_is_removed() -> None:
    harness = upgraded()
    join(harness, "P")
    harness.advance(9_000)
    beat(harness, "P", 2)
    harness.advance(9_000)
    beat(harness, "P", 2)
    assert "P" in harness.group.members
    harness.advance(2_000)  # the rebalance timeout of 20 s is over
    assert "P" not in harness.group.members


def test_classic_member_without_heartbeats_expires_after_its_session_timeout() -> None:
    harness = upgraded()
    harness.restart()
    harness.advance(9_999)
    assert "P" in harness.group.members
    harness.advance(1)
    assert "P" not in harness.group.members


def test_heartbeat_tells_a_member_that_waits_when_its_partitions_are_free() -> None:
    harness = migrating()
    harness.join("A", "t")
    generation = join(harness, "P").generation
    assert synced(harness, "P", generation) == set()
    assert beat(harness, "P", generation) is ErrorCode.NONE
    harness.beat("A", owned=parts(t=range(6)))
    assert beat(harness, "P", generation) is ErrorCode.NONE
    harness.beat("A", owned=parts(t=(0, 1, 2)))
    assert beat(harness, "P", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    join(harness, "P")
    assert synced(harness, "P", generation) == {3, 4, 5}


def test_cooperative_member_gives_up_partitions_in_two_joins() -> None:
    harness = migrating()
    start_classic(harness)
    harness.join("A", "t")
    reply = join(harness, "P", owned=EVERY)
    assert reply.generation == 1
    kept = synced(harness, "P", 1)
    assert beat(harness, "P", 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.beat("A", owned={}).assignment is None
    reply = join(harness, "P", owned=frozenset(("t", number) for number in kept))
    assert reply.generation == 2
    assert harness.beat("A", owned={}).assignment


def test_join_group_that_needs_a_target_waits_for_it() -> None:
    harness = upgraded()
    harness.runs_actions = False
    assert join(harness, "Q") is None
    harness.run_actions()
    assert harness.group.members["Q"].epoch == 3


def test_member_that_changes_the_protocol_under_its_id_stays_in_the_group() -> None:
    harness = upgraded()
    harness.join("P", "t")
    assert harness.group.classic_count == 0
    assert join(harness, "P").generation == harness.group.members["P"].epoch
    assert harness.group.classic_count == 1


def test_static_members_change_the_protocol_at_once_in_both_directions() -> None:
    harness = migrating()
    start_classic(harness, instance_id="i")
    reply = harness.join("A", "t", instance_id="i")
    assert reply.assignment == parts(t=range(6))
    assert harness.group.members.keys() == {"A"}
    back = join(harness, "P2", instance_id="i")
    assert list(classic_group(harness).members) == ["P2"]
    assert (back.generation, back.leader) == (2, "P2")


def test_static_member_that_downgrades_a_group_waits_for_the_rebalance() -> None:
    harness = migrating()
    start_classic(harness, protocols=ranked("range", "cooperative"))
    harness.join("A", "t", instance_id="i")
    join(harness, "P", protocols=ranked("range", "cooperative"))
    synced(harness, "P", 2)
    harness.beat("A", owned={}, instance_id="i")
    assert harness.epochs == ("Stable", 2, 2)
    waiting = harness.ticket()
    swapped = ranked("cooperative", "range")
    assert join(harness, "Q", ticket=waiting, protocols=swapped, instance_id="i") is None
    assert beat(harness, "P", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    reply = join(harness, "P", protocols=ranked("range", "cooperative"))
    returned = harness.replies[waiting]
    assert (returned.protocol, returned.leader) == (reply.protocol, reply.leader)
    assert reply.leader in ("P", "Q")
    named = {"protocol_type": "consumer", "protocol": returned.protocol, "instance_id": "i"}
    assert sync(harness, "Q", 3, **named) is None or reply.leader == "Q"


# Downgrade.


def test_last_consumer_that_leaves_downgrades_the_group() -> None:
    harness = upgraded()
    harness.leave("A")
    group = classic_group(harness)
    assert (group.state, group.generation) == (GroupState.PREPARING_REBALANCE, 2)
    assert beat(harness, "P", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join(harness, "P").leader == "P"


def test_consumer_whose_session_ends_downgrades_the_group() -> None:
    harness = upgraded()
    for _ in range(9):
        harness.advance(5_000)
        beat(harness, "P", 2)
    assert list(classic_group(harness).members) == ["P"]


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE])
def test_policy_without_downgrades_keeps_the_consumer_group(policy: MigrationPolicy) -> None:
    harness = upgraded(policy)
    harness.leave("A")
    assert beat(harness, "P", 2) is ErrorCode.NONE  # it orders the target
    assert beat(harness, "P", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    generation = join(harness, "P").generation
    assert synced(harness, "P", generation) == set(range(6))
    request(harness, Leave, members=(LeavingMember(member_id="P"),))
    assert harness.group.is_empty


#: The size of one member in the record of a classic group.
MEMBER_BYTES = record_size("P", None, "P", (Protocol("range", subscription("t")),))


@pytest.mark.parametrize(
    ("name", "limit"), [("members_max", 1), ("group_bytes_max", 2 * MEMBER_BYTES - 1)]
)
def test_members_too_many_for_a_classic_group_stay_in_the_consumer_group(
    name: str, limit: int
) -> None:
    harness = upgraded()
    join(harness, "Q")
    restart_with(harness, **{name: limit})
    harness.leave("A")
    assert harness.group.members.keys() == {"P", "Q"}
    assert beat(harness, "P", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    held = {each: synced(harness, each, join(harness, each).generation) for each in "PQ"}
    assert held["P"] | held["Q"] == set(range(6))
    request(harness, Leave, members=(LeavingMember(member_id="Q"),))
    assert list(classic_group(harness).members) == ["P"]  # one member is not too many


def test_coordinator_that_takes_over_after_a_downgrade_has_the_whole_group() -> None:
    harness = upgraded()
    offsets = (OffsetToCommit(topic="t", partition=0, offset=5),)
    request(harness, Commit, member_id="P", generation=2, offsets=offsets)
    harness.leave("A")
    harness.restart()
    group = classic_group(harness)
    assert (group.state, list(group.members)) == (GroupState.PREPARING_REBALANCE, ["P"])
    assert len(group.assignments["P"]) > 0  # its target when the group changed
    assert beat(harness, "P", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = join(harness, "P")  # it leads, and assigns the partitions of the member that left
    assert (joined.generation, joined.leader) == (3, "P")
    found = request(harness, FetchOffsets, partitions=(("t", 0),)).offsets
    assert found[0].offset == 5


def test_downgrade_answers_a_join_group_that_waits() -> None:
    harness = upgraded()
    harness.runs_actions = False
    waiting = harness.ticket()
    join(harness, "Q", ticket=waiting)
    harness.leave("A")
    assert harness.replies[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(classic_group(harness).members) == {"P", "Q"}
    harness.run_actions()  # the result of the former group is ignored


def test_group_is_upgraded_again_after_a_downgrade() -> None:
    harness = upgraded()
    harness.leave("A")
    harness.send("B", 0, **joining("t"))
    assert harness.group.members.keys() == {"P", "B"}


def test_consumer_heartbeat_of_a_reconciled_classic_member_changes_its_protocol() -> None:
    harness = migrating()
    start_classic(harness)
    harness.join("A", "u")  # a topic that does not exist
    generation = join(harness, "P", owned=EVERY).generation
    sync(harness, "P", generation)
    member = harness.group.members["P"]
    assert member.is_classic
    assert member.is_reconciled(harness.group.epoch)
    before = harness.short_path_count
    assert harness.beat("P", client_id="P").error is ErrorCode.NONE
    assert not member.is_classic
    assert harness.short_path_count == before
    harness.beat("P", client_id="P")
    assert harness.short_path_count == before + 1
