"""Offsets of consumer groups: fencing by member epochs, expiry, deletion; classic requests."""

from __future__ import annotations

from partage.coordinator.events import (
    Commit,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    Join,
    ListGroups,
    OffsetToCommit,
    Protocol,
    Sync,
    TimerFired,
    TransactionalCommit,
)
from partage.coordinator.group import Group
from partage.coordinator.replies import (
    CommitReply,
    DeleteGroupReply,
    DeleteOffsetsReply,
    DescribeGroupReply,
    FetchOffsetsReply,
    HeartbeatReply,
    JoinReply,
    ListGroupsReply,
    SyncReply,
)
from partage.coordinator.timers import ExpiryTimer
from partage.model.errors import ErrorCode
from partage.model.settings import ConsumerGroupSettings, MigrationPolicy

from .harness import ConsumerHarness, parts

NONE, STALE = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def commit(
    harness: ConsumerHarness, member_id: str, epoch: int, *partitions: int, **fields: object
) -> tuple[ErrorCode, ...]:
    """Commit offset 5 for partitions of topic ``t``; return the errors."""
    ticket = harness.ticket()
    offsets = tuple(OffsetToCommit(topic="t", partition=each, offset=5) for each in partitions)
    event = Commit(
        at_ms=harness.now_ms,
        reply_to=ticket,
        group_id="g",
        member_id=member_id,
        generation=epoch,
        offsets=offsets,
        **fields,  # type: ignore[arg-type]
    )
    harness.handle(event)
    reply = harness.replies[ticket]
    assert isinstance(reply, CommitReply)
    return reply.errors


def fetch(
    harness: ConsumerHarness, member_id: str | None = None, epoch: int = -1
) -> FetchOffsetsReply:
    """Fetch all offsets."""
    ticket = harness.ticket()
    harness.handle(
        FetchOffsets(
            at_ms=harness.now_ms,
            reply_to=ticket,
            group_id="g",
            partitions=None,
            member_id=member_id,
            member_epoch=epoch,
        )
    )
    reply = harness.replies[ticket]
    assert isinstance(reply, FetchOffsetsReply)
    return reply


def test_member_commits_with_its_epoch() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    assert commit(harness, "A", 2, 0) == (NONE,)
    assert commit(harness, "A", 3, 0) == (STALE,)
    assert commit(harness, "A", 1, 0) == (STALE,)
    assert commit(harness, "A", -1, 0) == (STALE,)
    assert commit(harness, "B", 2, 0) == (UNKNOWN,)
    assert commit(harness, "", -1, 0) == (UNKNOWN,)
    old_client = commit(harness, "A", 2, 0, knows_group_not_found=False)
    assert old_client == (ErrorCode.UNSUPPORTED_VERSION,)


def test_older_epoch_counts_for_partitions_held_since_then() -> None:
    """KIP-1251."""
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.join("B", "t")
    harness.beat("A")
    assert commit(harness, "A", 2, 0, 3) == (NONE, NONE)
    harness.beat("A", owned=parts(t=(0, 1, 2)))
    assert commit(harness, "A", 2, 0, 3) == (NONE, STALE)
    assert commit(harness, "A", 3, 3) == (NONE,)
    harness.beat("B")
    assert commit(harness, "B", 2, 3) == (STALE,)


def test_pending_revocation_counts_for_older_epochs() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.join("B", "t")
    harness.beat("A", owned=parts(t=(0, 1, 2)))
    harness.join("C", "t")
    harness.beat("A")
    assert harness.group.members["A"].assignment.pending_revocation
    assert commit(harness, "A", 2, 2) == (NONE,)


def test_transactional_commit_is_fenced_only_if_it_names_a_member() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    found = []
    for member_id, epoch in (("", -1), ("A", 2), ("A", 9), ("B", 2)):
        ticket = harness.ticket()
        harness.handle(
            TransactionalCommit(
                at_ms=harness.now_ms,
                reply_to=ticket,
                group_id="g",
                producer_id=1,
                producer_epoch=0,
                member_id=member_id,
                generation=epoch,
                offsets=(OffsetToCommit(topic="t", partition=0, offset=1),),
            )
        )
        found.append(harness.replies[ticket].errors[0])  # type: ignore[attr-defined]
    assert found == [NONE, NONE, STALE, UNKNOWN]


def test_log_with_a_transaction_restores_the_group() -> None:
    """Such a log is applied record by record."""
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.handle(
        TransactionalCommit(
            at_ms=harness.now_ms,
            reply_to=harness.ticket(),
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            offsets=(OffsetToCommit(topic="t", partition=0, offset=1),),
        )
    )
    harness.join("B", "t")
    harness.beat("A", owned=parts(t=(0, 1, 2)))
    harness.restart()
    assert harness.epochs == ("Reconciling", 3, 3)
    assert harness.beat("B").assignment == parts(t=(3, 4, 5))


def test_fetch_checks_the_epoch_of_a_named_member() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    commit(harness, "A", 2, 0)
    assert fetch(harness).error is NONE
    assert fetch(harness, "A", 2).offsets[0].offset == 5  # type: ignore[union-attr]
    assert fetch(harness, "A", 1).error is STALE
    assert fetch(harness, "", -1).error is UNKNOWN
    assert fetch(harness, "B", 2).error is UNKNOWN


def test_empty_group_accepts_commits_without_an_epoch() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    harness.leave("A")
    assert commit(harness, "A", 1, 0) == (UNKNOWN,)
    assert commit(harness, "A", -1, 0) == (NONE,)
    assert commit(harness, "", -1, 0) == (NONE,)


def test_offsets_of_subscribed_topics_are_kept_and_others_expire() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    commit(harness, "A", 2, 0)
    harness.now_ms += harness.settings.offsets_retention_ms
    expiry = TimerFired(at_ms=harness.now_ms, key=ExpiryTimer())
    harness.handle(expiry)
    assert harness.shard.offsets
    harness.beat("A", subscribed_topics=("u",))
    harness.handle(expiry)
    assert not harness.shard.offsets


def test_empty_group_without_offsets_expires() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    commit(harness, "A", 2, 0)
    harness.leave("A")
    harness.now_ms += harness.settings.offsets_retention_ms
    harness.handle(TimerFired(at_ms=harness.now_ms, key=ExpiryTimer()))
    assert (harness.shard.groups, harness.shard.offsets) == ({}, {})


def test_deletion_needs_an_empty_group_and_unused_topics() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    commit(harness, "A", 2, 0)

    def delete_offsets() -> object:
        ticket = harness.ticket()
        event = DeleteOffsets(
            at_ms=harness.now_ms, reply_to=ticket, group_id="g", partitions=(("t", 0),)
        )
        harness.handle(event)
        return harness.replies[ticket]

    def delete_group() -> object:
        ticket = harness.ticket()
        harness.handle(DeleteGroup(at_ms=harness.now_ms, reply_to=ticket, group_id="g"))
        return harness.replies[ticket]

    used = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offsets() == DeleteOffsetsReply(errors=(used,))
    assert delete_group() == DeleteGroupReply(error=ErrorCode.NON_EMPTY_GROUP)
    harness.leave("A")
    assert delete_offsets() == DeleteOffsetsReply(errors=(NONE,))
    commit(harness, "", -1, 0)
    assert delete_group() == DeleteGroupReply(error=NONE)
    assert (harness.shard.groups, harness.shard.offsets) == ({}, {})


# Classic requests, and groups of the other type.


def classic_join(harness: ConsumerHarness, member_id: str = "") -> JoinReply | None:
    """Send a JoinGroup; return its reply, if there is one already."""
    ticket = harness.ticket()
    harness.handle(
        Join(
            at_ms=harness.now_ms,
            reply_to=ticket,
            group_id="g",
            member_id=member_id,
            generated_member_id="Q",
            client_id="q",
            client_host="/q",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(Protocol("range", b"t"),),
            must_rejoin_with_id=False,
        )
    )
    reply = harness.replies.get(ticket)
    assert reply is None or isinstance(reply, JoinReply)
    return reply


def test_classic_requests_to_a_consumer_group_are_refused() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    for member_id in ("", "X"):
        reply = classic_join(harness, member_id)
        assert reply is not None
        assert reply.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    ticket = harness.ticket()
    asked = {"at_ms": harness.now_ms, "reply_to": ticket, "group_id": "g", "member_id": "A"}
    harness.handle(Heartbeat(**asked, generation=2))  # type: ignore[arg-type]
    assert harness.replies[ticket] == HeartbeatReply(UNKNOWN)
    asked["reply_to"] = harness.ticket()
    harness.handle(Sync(**asked, generation=2))  # type: ignore[arg-type]
    assert harness.replies[asked["reply_to"]] == SyncReply(error=UNKNOWN)  # type: ignore[index]
    for knows, error in ((True, ErrorCode.GROUP_ID_NOT_FOUND), (False, NONE)):
        ticket = harness.ticket()
        harness.handle(
            DescribeGroup(
                at_ms=harness.now_ms, reply_to=ticket, group_id="g", knows_group_not_found=knows
            )
        )
        assert harness.replies[ticket] == DescribeGroupReply(
            error=error, error_message="Group g is not a classic group.", group_id="g"
        )


def test_classic_group_replaces_empty_consumer_group_and_keeps_offsets() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    commit(harness, "A", 2, 0)
    harness.leave("A")
    assert classic_join(harness) is None  # parked
    assert isinstance(harness.shard.groups["g"], Group)
    assert fetch(harness).offsets


def test_empty_classic_group_is_replaced_and_keeps_its_offsets() -> None:
    harness = ConsumerHarness()
    assert commit(harness, "", -1, 0) == (NONE,)
    assert isinstance(harness.shard.groups["g"], Group)
    reply = harness.join("A", "t")
    assert (reply.member_epoch, reply.assignment) == (2, parts(t=range(6)))
    assert fetch(harness, "A", 2).offsets
    harness.restart()
    assert fetch(harness, "A", 2).offsets
    assert harness.epochs == ("Stable", 2, 2)


def test_classic_group_with_members_is_not_replaced() -> None:
    disabled = ConsumerGroupSettings(migration_policy=MigrationPolicy.DISABLED)
    harness = ConsumerHarness(settings=disabled)
    classic_join(harness)
    reply = harness.join("A", "t")
    assert reply.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert reply.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )
    assert harness.ask("A", 2).error_message == "Group g is not a consumer group."
    assert harness.leave("A").error_message == "Group g is not a consumer group."
    assert harness.describe().error_message == "Group g is not a consumer group."


def test_list_shows_state_and_type_and_filters_them() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t")
    found = []
    for states, types in (((), ()), (("stable",), ("consumer",)), ((), ("classic",))):
        ticket = harness.ticket()
        harness.handle(
            ListGroups(
                at_ms=harness.now_ms,
                reply_to=ticket,
                states=frozenset(states),
                types=frozenset(types),
            )
        )
        reply = harness.replies[ticket]
        assert isinstance(reply, ListGroupsReply)
        found.append([(g.group_id, g.protocol_type, g.state, g.type) for g in reply.groups])
    listed = [("g", "consumer", "Stable", "consumer")]
    assert found == [listed, listed, []]


def test_describe_shows_held_and_target_partitions() -> None:
    harness = ConsumerHarness()
    harness.join("A", "t", rack_id="r")
    harness.join("B", "t")
    harness.beat("A")
    (first, second) = harness.describe().members
    assert [each.partitions for each in first.assignment] == [tuple(range(6))]
    assert [each.partitions for each in first.target_assignment] == [(0, 1, 2)]
    assert (first.rack_id, first.client_id, first.subscribed_topics) == ("r", "client", ("t",))
    assert (second.member_epoch, second.assignment) == (3, ())
