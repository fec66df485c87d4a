"""The design with many assignors: its coordinator and its member, event by event."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from partage.assignors import ConsistentHashing, Member, RoundRobin
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.assignment import assign_partitions
from partage.proposals.join_group.group import (
    DesignGroupState,
    ExpirationTimer,
    JoinPhaseTimer,
    MemberSessionTimer,
)
from partage.proposals.join_group.member import DesignMemberState, Timer
from partage.proposals.join_group.records import CommittedOffsetRecord, GenerationRecord
from partage.proposals.join_group.settings import CoordinatorSettings, DesignMemberSettings
from partage.proposals.machine import ConnectionId
from partage.proposals.multi_assignor.computation import MetadataCompression, active_subscription
from partage.proposals.multi_assignor.coordinator import MultiAssignorCoordinator
from partage.proposals.multi_assignor.member import MultiAssignorMember, MultiAssignorOptions
from partage.proposals.multi_assignor.messages import (
    JoinGroupMember,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from partage.proposals.multi_assignor.metadata import (
    HashedMetadata,
    SubscriptionMetadata,
    encode_metadata,
    hash_subscription,
    hash_topics,
)
from partage.proposals.topic_pattern import TopicPattern
from partage.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.leave_group import LeaveGroupRequest
from partage.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from partage.wire.apis.offset_fetch import OffsetFetchResponse
from partage.wire.types import Message

NO_DELAY = CoordinatorSettings(initial_rebalance_delay_ms=0)


def join_request(
    member_id: str = "", protocols: Iterable[str | JoinGroupProtocol] = ("range",), **changes: Any
) -> Message:
    values = {
        "group_id": "g",
        "session_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [
            JoinGroupProtocol(name=each, metadata=b"m") if isinstance(each, str) else each
            for each in protocols
        ],
    }
    return JoinGroupRequest(**{**values, **changes})


def commit_request(member_id: str, generation: int) -> OffsetCommitRequest:
    """Return a commit of offset 5 for one partition."""
    partition = OffsetCommitPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitTopic(name="t", partitions=[partition])],
    )


class Harness:
    """A coordinator, with the messages that it has sent and its armed timers."""

    def __init__(self, coordinator: MultiAssignorCoordinator) -> None:
        self.coordinator = coordinator
        self.now_ms = 0
        self.timers: dict[Any, int] = {}
        self._draw = 0

    def send(self, connection: int, message: Message) -> list[tuple[int, Any]]:
        self._draw += 1
        return self._handle(
            machine.MessageReceived(
                at_ms=self.now_ms,
                connection=ConnectionId(connection),
                message=message,
                draw=self._draw,
            )
        )

    def lose(self, connection: int) -> list[tuple[int, Any]]:
        return self._handle(
            machine.ConnectionLost(at_ms=self.now_ms, connection=ConnectionId(connection))
        )

    def fire(self, key: Any) -> list[tuple[int, Any]]:
        self.now_ms = self.timers.pop(key)
        return self._handle(machine.TimerFired(at_ms=self.now_ms, key=key))

    def _handle(self, event: machine.Event) -> list[tuple[int, Any]]:
        outcome = self.coordinator.handle(event)
        for key, deadline_ms in outcome.timers:
            if deadline_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = deadline_ms
        return list(outcome.sends)

    @property
    def state(self) -> DesignGroupState:
        return self.coordinator.groups["g"].state


@pytest.fixture
def harness() -> Harness:
    return Harness(MultiAssignorCoordinator(NO_DELAY))


def joined_pair(harness: Harness) -> tuple[str, str]:
    """Bring two members into one generation; return their ids."""
    ((_, first),) = harness.send(1, join_request())
    assert harness.send(2, join_request()) == []
    sends = harness.send(1, join_request(first.member_id))
    return first.member_id, next(message.member_id for to, message in sends if to == 2)


class TestCoordinator:
    def test_join_of_all_members_sends_all_metadata_to_every_member(self, harness: Harness) -> None:
        first, second = joined_pair(harness)
        assert harness.state is DesignGroupState.STABLE
        sends = []
        assert harness.send(1, join_request(first)) == []
        sends = harness.send(2, join_request(second))
        assert [to for to, _ in sends] == [1, 2]
        for _, response in sends:
            assert response.generation_id == 3
            assert [each.member_id for each in response.members] == [first, second]
            assert all(each.metadata == b"m" for each in response.members)

    def test_empty_group_waits_for_the_initial_delay(self) -> None:
        harness = Harness(MultiAssignorCoordinator(CoordinatorSettings()))
        assert harness.send(1, join_request()) == []
        assert harness.send(2, join_request()) == []
        assert harness.timers[JoinPhaseTimer("g")] == 3_000
        assert [to for to, _ in harness.fire(JoinPhaseTimer("g"))] == [1, 2]

    def test_protocol_of_most_members_is_selected(self, harness: Harness) -> None:
        harness = Harness(MultiAssignorCoordinator(CoordinatorSettings()))
        harness.send(1, join_request(protocols=("a", "b")))
        harness.send(2, join_request(protocols=("b", "a")))
        harness.send(3, join_request(protocols=("c", "b", "a")))
        assert {message.protocol_name for _, message in harness.fire(JoinPhaseTimer("g"))} == {"b"}

    @pytest.mark.parametrize(
        ("request_", "error"),
        [
            (join_request(group_id=""), ErrorCode.INVALID_GROUP_ID),
            (join_request(session_timeout=5_999), ErrorCode.INVALID_SESSION_TIMEOUT),
            (join_request(session_timeout=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
            (join_request("unknown"), ErrorCode.UNKNOWN_MEMBER_ID),
            (join_request(protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            (join_request(protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            (join_request(protocols=("other",)), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
            (join_request(protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ],
    )
    def test_wrong_join_is_refused_and_the_group_continues(
        self, harness: Harness, request_: Message, error: ErrorCode
    ) -> None:
        joined_pair(harness)
        ((to, response),) = harness.send(9, request_)
        assert (to, response.error_code) == (9, error)
        assert harness.state is DesignGroupState.STABLE

    def test_member_without_heartbeat_is_removed_and_others_rejoin(self, harness: Harness) -> None:
        first, second = joined_pair(harness)
        assert harness.fire(MemberSessionTimer("g", second)) == []
        assert harness.state is DesignGroupState.JOINING
        ((_, response),) = harness.send(
            1, HeartbeatRequest(group_id="g", generation_id=2, member_id=first)
        )
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
        ((_, response),) = harness.send(1, join_request(first))
        assert [each.member_id for each in response.members] == [first]

    def test_member_that_does_not_rejoin_in_time_is_dropped(self, harness: Harness) -> None:
        first, second = joined_pair(harness)
        assert harness.send(1, join_request(first)) == []
        ((_, response),) = harness.fire(JoinPhaseTimer("g"))
        assert [each.member_id for each in response.members] == [first]
        ((_, response),) = harness.send(
            2, HeartbeatRequest(group_id="g", generation_id=2, member_id=second)
        )
        assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def test_lost_connection_of_parked_member_ends_with_the_join_phase(
        self, harness: Harness
    ) -> None:
        first, second = joined_pair(harness)
        harness.send(1, join_request(first))
        assert harness.lose(1) == []
        assert harness.send(2, join_request(second)) == []
        ((to, response),) = harness.fire(JoinPhaseTimer("g"))
        assert (to, [each.member_id for each in response.members]) == (2, [second])

    def test_leaving_member_starts_a_join_phase_and_the_last_empties_the_group(
        self, harness: Harness
    ) -> None:
        first, second = joined_pair(harness)
        harness.send(1, LeaveGroupRequest(group_id="g", member_id=first))
        assert harness.state is DesignGroupState.JOINING
        harness.send(2, LeaveGroupRequest(group_id="g", member_id=second))
        assert harness.state is DesignGroupState.EMPTY
        assert set(harness.timers) == {ExpirationTimer("g")}

    def test_group_without_members_or_offsets_is_removed(self, harness: Harness) -> None:
        ((_, joined),) = harness.send(1, join_request())
        harness.send(1, LeaveGroupRequest(group_id="g", member_id=joined.member_id))
        assert harness.timers == {ExpirationTimer("g"): 600_000}
        assert harness.fire(ExpirationTimer("g")) == []
        assert harness.coordinator.groups == {}
        ((_, joined),) = harness.send(1, join_request())
        assert joined.generation_id == 1

    def test_offsets_of_group_without_members_are_kept_for_the_retention_time(
        self, harness: Harness
    ) -> None:
        ((_, joined),) = harness.send(1, join_request())
        harness.send(1, commit_request(joined.member_id, joined.generation_id))
        harness.send(1, LeaveGroupRequest(group_id="g", member_id=joined.member_id))
        assert harness.timers == {ExpirationTimer("g"): 604_800_000}
        harness.send(1, join_request())
        assert ExpirationTimer("g") not in harness.timers
        assert harness.coordinator.offsets["g"] == {("t", 0): 5}

    def test_loaded_group_without_members_is_removed_with_its_offsets(self) -> None:
        """Its members may come back within the longest session, so it is kept for that time."""
        settings = CoordinatorSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=1_000)
        harness = Harness(MultiAssignorCoordinator(settings))
        harness.coordinator.apply(GenerationRecord(group_id="old", generation=7))
        harness.coordinator.apply(
            CommittedOffsetRecord(group_id="old", topic="t", partition=0, offset=5)
        )
        harness.send(1, join_request())
        assert harness.timers[ExpirationTimer("old")] == settings.session_timeout_max_ms
        harness.fire(ExpirationTimer("old"))
        assert list(harness.coordinator.groups) == ["g"]
        assert harness.coordinator.offsets == {}

    def test_metadata_above_the_limit_of_the_coordinator_is_refused(self) -> None:
        settings = CoordinatorSettings(initial_rebalance_delay_ms=0, metadata_bytes_max=95)
        harness = Harness(MultiAssignorCoordinator(settings))
        large = [JoinGroupProtocol(name="range", metadata=bytes(90))]  # exactly the limit
        ((_, joined),) = harness.send(1, join_request(protocols=large))
        assert joined.error_code == ErrorCode.NONE
        ((_, refused),) = harness.send(2, join_request(protocols=large, group_id="other"))
        assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert list(harness.coordinator.groups) == ["g"]
        # The same member may send its metadata again, and another one after it has left.
        ((_, rejoined),) = harness.send(1, join_request(joined.member_id, protocols=large))
        assert rejoined.error_code == ErrorCode.NONE
        harness.send(1, LeaveGroupRequest(group_id="g", member_id=joined.member_id))
        ((_, joined),) = harness.send(2, join_request(protocols=large, group_id="other"))
        assert joined.error_code == ErrorCode.NONE

    @pytest.mark.parametrize(
        ("generation", "known", "error"),
        [
            (2, True, ErrorCode.NONE),
            (1, True, ErrorCode.ILLEGAL_GENERATION),
            (2, False, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_commit_is_accepted_from_members_of_the_generation_only(
        self, harness: Harness, generation: int, known: bool, error: ErrorCode
    ) -> None:
        first, _ = joined_pair(harness)
        ((_, response),) = harness.send(1, commit_request(first if known else "zombie", generation))
        assert response.topics[0].partitions[0].error_code == error
        stored = harness.coordinator.offsets.get("g", {})
        assert stored == ({("t", 0): 5} if error is ErrorCode.NONE else {})


OWNED = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})


def member_with(
    *, partitions: int = 2, topics: dict[str, int] | None = None, **options: Any
) -> MultiAssignorMember:
    """Return a member that has sent its first JoinGroup request."""
    member = MultiAssignorMember(
        DesignMemberSettings(group_id="g"),
        frozenset({"t"}),
        MultiAssignorOptions(**{"assignors": (RoundRobin(),), **options}),
    )
    member.handle(machine.Started(at_ms=0))
    member.handle(machine.Connected(at_ms=0))
    known = {"t": partitions, "u": 5} if topics is None else topics
    member.handle(machine.MetadataFetched(at_ms=0, topics=known))
    assert member.state is DesignMemberState.JOINING
    return member


def response_with(*metadata: bytes) -> JoinGroupResponse:
    """Return a response to member "a" with the metadata of "a", "b" and so on."""
    return JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_name="roundrobin",
        member_id="a",
        members=[
            JoinGroupMember(member_id="abcdef"[number], metadata=each)
            for number, each in enumerate(metadata)
        ],
    )


def subscription(topics: tuple[str, ...] = ("t",), **counts: int) -> bytes:
    view = {"t": 2, **counts}
    return encode_metadata(
        SubscriptionMetadata(topics=list(topics), metadata_hash=hash_topics(view, topics))
    )


def receive(member: MultiAssignorMember, response: Message) -> list[machine.Action]:
    return member.handle(machine.ResponseReceived(at_ms=0, message=response)).actions


class TestMember:
    def test_member_takes_its_part_of_the_assignment(self) -> None:
        member = member_with()
        receive(member, response_with(subscription(), subscription()))
        assert member.owned == {TopicPartition("t", 0)}

    def test_member_with_another_view_of_topics_fetches_metadata_again(self) -> None:
        member = member_with()
        actions = receive(member, response_with(subscription(), subscription(t=3)))
        assert actions == [machine.FetchMetadata()]
        assert member.owned == frozenset()
        assert member.disagreements == 1

    def test_view_of_a_topic_that_only_another_member_reads_is_checked_too(self) -> None:
        member = member_with()
        receive(member, response_with(subscription(), subscription(("u",), u=4)))
        assert member.disagreements == 1

    def test_repeated_disagreement_fetches_metadata_from_the_coordinator(self) -> None:
        member = member_with(coordinator_metadata_after=1)
        actions = receive(member, response_with(subscription(), subscription(t=3)))
        assert actions == [machine.FetchMetadata(is_from_coordinator=True)]

    def test_metadata_comes_from_the_coordinator_from_then_on(self) -> None:
        member = member_with(coordinator_metadata_after=2)
        for _ in range(2):
            assert not member.fetches_from_coordinator
            receive(member, response_with(subscription(), subscription(t=3)))
            member.handle(machine.MetadataFetched(at_ms=0, topics={"t": 2}))
        receive(member, response_with(subscription(), subscription()))
        assert (len(member.owned), member.disagreements) == (1, 0)
        assert member.fetches_from_coordinator

    def test_unchecked_member_ignores_other_views(self) -> None:
        member = member_with(checks_metadata=False)
        receive(member, response_with(subscription(), subscription(t=3)))
        assert member.owned == {TopicPartition("t", 0)}

    @pytest.mark.parametrize(
        ("options", "metadata"),
        [
            ({}, b"\0\1"),
            ({}, encode_metadata(SubscriptionMetadata(topics=[], metadata_hash=b""))[:-1]),
            (
                {},
                encode_metadata(
                    SubscriptionMetadata(topics=[], topic_pattern="(", metadata_hash=b"")
                ),
            ),
            ({"compression": MetadataCompression.MEMBER}, b"not compressed"),
            ({"hashes_subscription": True}, b"\xff"),
        ],
    )
    def test_malformed_metadata_of_another_member_is_an_error(
        self, options: dict[str, Any], metadata: bytes
    ) -> None:
        member = member_with(**options)
        own = hashed("t") if options.get("hashes_subscription") else subscription()
        if "compression" in options:
            own = zlib.compress(own)
        actions = receive(member, response_with(own, metadata))
        (error,) = [each for each in actions if isinstance(each, machine.ReportError)]
        assert error.reason.startswith("the metadata of a member is malformed")
        assert (member.state, member.owned) == (DesignMemberState.STOPPED, frozenset())

    def test_frequent_commits_do_not_postpone_heartbeats(self) -> None:
        member = member_with()
        receive(member, response_with(subscription()))
        receive(member, OffsetFetchResponse(topics=[]))
        commit = machine.PositionsTaken(at_ms=0, positions={TopicPartition("t", 0): 1})
        member.handle(commit)
        assert member.handle(machine.TimerFired(at_ms=0, key=Timer.HEARTBEAT)).actions == []
        (send,) = receive(member, OffsetCommitResponse(topics=[]))
        assert isinstance(send, machine.Send)
        assert isinstance(send.message, HeartbeatRequest)
        receive(member, HeartbeatResponse(error_code=0))
        member.handle(commit)
        outcome = member.handle(
            machine.ResponseReceived(at_ms=0, message=OffsetCommitResponse(topics=[]))
        )
        assert Timer.HEARTBEAT not in dict(outcome.timers)

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (ErrorCode.INVALID_SESSION_TIMEOUT, "the coordinator allows no such session timeout"),
            (ErrorCode.GROUP_MAX_SIZE_REACHED, "send less user data"),
        ],
    )
    def test_refused_member_is_told_what_to_change(self, error: ErrorCode, reason: str) -> None:
        member = member_with()
        response = response_with()
        response.error_code = error
        (report,) = [
            each for each in receive(member, response) if isinstance(each, machine.ReportError)
        ]
        assert report.reason.startswith(f"{error.name}: ")
        assert report.reason.endswith(reason)
        assert member.state is DesignMemberState.STOPPED

    def test_unknown_error_code_is_not_a_fault_of_the_member(self) -> None:
        member = member_with()
        response = response_with()
        response.error_code = 999
        actions = receive(member, response)
        assert actions == [machine.Disconnect()]

    def test_unknown_protocol_of_the_coordinator_is_an_error(self) -> None:
        member = member_with()
        response = response_with(subscription())
        response.protocol_name = "range"
        actions = receive(member, response)
        assert machine.ReportError(reason="no assignor has the protocol 'range'") in actions

    def test_pattern_covers_all_topics_of_the_cluster(self) -> None:
        member = member_with(pattern=TopicPattern("t.*"))
        assert member.subscribed_topics == {"t"}
        other = encode_metadata(
            SubscriptionMetadata(
                topics=[], topic_pattern="t.*", metadata_hash=hash_topics({"t": 2}, ["t"])
            )
        )
        receive(member, response_with(other, other))
        assert member.disagreements == 1  # the other member does not know topic u

    @pytest.mark.parametrize(
        ("metadata", "reason"),
        [
            (zlib.compress(bytes(17 << 20)), "more than 16777216 bytes after decompression"),
            (zlib.compress(bytes(100))[:-5], "the compressed bytes end too early"),
        ],
    )
    def test_compressed_metadata_that_is_cut_or_too_large_is_an_error(
        self, metadata: bytes, reason: str
    ) -> None:
        member = member_with(compression=MetadataCompression.MEMBER)
        actions = receive(member, response_with(zlib.compress(subscription()), metadata))
        (error,) = [each for each in actions if isinstance(each, machine.ReportError)]
        assert error.reason == f"the metadata of a member is malformed: {reason}"

    @pytest.mark.parametrize("compression", list(MetadataCompression))
    def test_compressed_metadata_gives_the_same_assignment(
        self, compression: MetadataCompression
    ) -> None:
        coordinator = MultiAssignorCoordinator(
            CoordinatorSettings(), compresses_members=compression is MetadataCompression.GROUP
        )
        harness = Harness(coordinator)
        members = [member_with(compression=compression) for _ in range(2)]
        for number, member in enumerate(members):
            harness.send(number, member._join_request())
        for to, response in harness.fire(JoinPhaseTimer("g")):
            assert bool(response.compressed_members) == (compression is MetadataCompression.GROUP)
            receive(members[to], response)
        assert sorted(p for member in members for p in member.owned) == sorted(OWNED)
        assert all(len(member.owned) == 1 for member in members)


def hashed(*topics: str) -> bytes:
    return encode_metadata(
        HashedMetadata(
            subscription_hash=hash_subscription(topics),
            metadata_hash=hash_topics({"t": 2, "u": 5}, topics),
        )
    )


class TestConsistentHashingWithoutBound:
    """``ConsistentHashing(headroom=None)``, which needs no agreement about topics."""

    def test_owners_stay_when_partitions_are_added(self) -> None:
        before, after = owners(20, headroom=None), owners(40, headroom=None)
        assert set(before.values()) == set("abc")
        assert before.items() <= after.items()
        # More partitions raise a bound, so some partitions return from the next member on the ring.
        assert not owners(20, headroom=0).items() <= owners(40, headroom=0).items()

    def test_members_with_other_counts_agree_on_common_partitions(self) -> None:
        counts = {"a": 20, "b": 40, "c": 23}
        joined = response_with(*[subscription(t=count) for count in counts.values()])
        joined.protocol_name = "consistent-hashing"
        expected = owners(40, headroom=None)
        owned: list[TopicPartition] = []
        for name, count in counts.items():
            member = member_with(
                partitions=count,
                assignors=(ConsistentHashing(headroom=None),),
                checks_metadata=False,
            )
            joined.member_id = name
            (fetch, *_) = receive(member, joined)
            assert isinstance(fetch, machine.Send)  # of positions: the member starts to read
            assert member.disagreements == 0
            assert member.owned == {
                TopicPartition("t", each)
                for each, owner in expected.items()
                if owner == name and each < count
            }
            owned += member.owned
        assert len(owned) == len(set(owned))
        assert {TopicPartition("t", each) for each in range(20)} <= set(owned)


def owners(count: int, *, headroom: float | None) -> dict[int, str]:
    """Return the owner of each partition of topic "t" among members "a", "b" and "c"."""
    members = tuple(Member(member_id=each, topics=("t",)) for each in "abc")
    shares = assign_partitions(ConsistentHashing(headroom=headroom), members, {"t": count})
    return {each.partition: name for name, share in shares.items() for each in share}


class TestSubscriptionHashes:
    def test_members_of_the_largest_sub_group_are_active(self) -> None:
        member = member_with(hashes_subscription=True)
        receive(member, response_with(hashed("t"), hashed("t"), hashed("t", "u")))
        assert not member.is_idle
        assert member.owned == {TopicPartition("t", 0)}

    def test_member_outside_the_largest_sub_group_waits_without_partitions(self) -> None:
        member = member_with(hashes_subscription=True)
        receive(member, response_with(hashed("t"), hashed("t", "u"), hashed("t", "u")))
        assert member.is_idle
        assert member.owned == frozenset()
        assert member.is_stable

    def test_disagreement_of_members_with_one_pattern_is_noticed(self) -> None:
        """The hash is that of the pattern, as one member may not know a topic that matches."""
        options: dict[str, Any] = {
            "hashes_subscription": True,
            "pattern": TopicPattern("[tu]"),
        }
        member, stale = member_with(**options), member_with(topics={"t": 2}, **options)
        requests: list[Any] = [each._join_request() for each in (member, stale)]
        metadata = [bytes(each.protocols[0].metadata) for each in requests]
        receive(member, response_with(*metadata))
        assert not member.is_idle
        assert member.disagreements == 1

    def test_pattern_is_another_subscription_than_a_topic_of_that_name(self) -> None:
        assert hash_subscription(["t"], "t") != hash_subscription(["t"])

    def test_tie_is_broken_by_the_smaller_hash(self) -> None:
        counts = Counter({b"b": 2, b"a": 2, b"c": 1})
        assert active_subscription(counts) == b"a"
