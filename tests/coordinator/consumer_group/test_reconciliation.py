"""Properties of the reconciliation: one owner for each partition, and the target is reached."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partage.coordinator.consumer_group.actions import ComputeTarget
from partage.coordinator.consumer_group.partitions import PartitionSet
from partage.coordinator.consumer_group.reconciliation import reconcile, to_partition_set
from partage.coordinator.consumer_group.records import MemberAssignmentRecord, ReconciliationState
from partage.model.errors import ErrorCode

from .harness import ConsumerHarness, joining, topic

PARTITIONS = 5
T = b"t".ljust(16, b".")
MEMBERS = ("A", "B", "C")

#: For each target: the owner of each partition, or None.
targets = st.lists(
    st.lists(st.sampled_from((*MEMBERS, None)), min_size=PARTITIONS, max_size=PARTITIONS),
    min_size=1,
    max_size=4,
)
#: Which member sends a heartbeat next, and whether it reports what it owns.
beats = st.lists(st.tuples(st.sampled_from(MEMBERS), st.booleans()), max_size=30)


class Client:
    """A client that reads the partitions of its last response."""

    def __init__(self, name: str) -> None:
        self.assignment = MemberAssignmentRecord(
            group_id="g", member_id=name, member_epoch=0, previous_member_epoch=0
        )
        self.owned: PartitionSet = {}


def heartbeat(
    clients: dict[str, Client], name: str, epoch: int, owners: list[str | None], reports: bool
) -> None:
    """Reconcile one member, deliver its assignment, and check the ownership."""

    def holder(topic_id: bytes, partition: int) -> str | None:
        for each in clients.values():
            for held in (each.assignment.assigned, each.assignment.pending_revocation):
                if partition in held.get(topic_id, {}):
                    return each.assignment.member_id
        return None

    client = clients[name]
    own = tuple(p for p, owner in enumerate(owners) if owner == name)
    following = reconcile(
        client.assignment,
        target_epoch=epoch,
        target={T: own} if own else {},
        owned=client.owned if reports else None,
        holder=holder,
    )
    assert following is not None
    assert client.assignment.member_epoch <= following.member_epoch <= epoch
    client.assignment = following
    client.owned = to_partition_set(following.assigned)
    read = [p for each in clients.values() for p in each.owned.get(T, ())]
    assert len(read) == len(set(read)), f"two members read a partition: {read}"


@given(targets, st.lists(beats, min_size=4, max_size=4))
@settings(max_examples=80, deadline=None)
def test_reconciliation_has_one_owner_and_reaches_the_target(
    owners: list[list[str | None]], sequences: list[list[tuple[str, bool]]]
) -> None:
    clients = {name: Client(name) for name in MEMBERS}
    for epoch, target in enumerate(owners, start=1):
        for name, reports in sequences[epoch - 1]:
            heartbeat(clients, name, epoch, target, reports)
    for _ in range(4):
        for name in MEMBERS:
            heartbeat(clients, name, len(owners), owners[-1], True)
    for name, client in clients.items():
        assert client.assignment.state is ReconciliationState.STABLE
        expected = tuple(p for p, owner in enumerate(owners[-1]) if owner == name)
        assert client.owned.get(T, ()) == expected


def test_partitions_that_stay_keep_the_epoch_of_their_assignment() -> None:
    current = MemberAssignmentRecord(
        group_id="g",
        member_id="A",
        member_epoch=3,
        previous_member_epoch=2,
        assigned={T: {0: 2, 1: 3}},
    )
    following = reconcile(
        current, target_epoch=5, target={T: (0, 4)}, owned={T: (0,)}, holder=lambda *_: None
    )
    assert following is not None
    assert following.assigned == {T: {0: 2, 4: 5}}
    assert (following.member_epoch, following.previous_member_epoch) == (5, 3)


def test_member_in_an_unknown_state_must_rejoin_without_partitions() -> None:
    current = MemberAssignmentRecord(
        group_id="g",
        member_id="A",
        member_epoch=3,
        previous_member_epoch=2,
        state=ReconciliationState.UNKNOWN,
    )

    def after(owned: PartitionSet | None) -> MemberAssignmentRecord | None:
        return reconcile(
            current, target_epoch=5, target={T: (0,)}, owned=owned, holder=lambda *_: None
        )

    assert after(None) is None
    assert after({T: (1,)}) is None
    stable = after({})
    assert stable is not None
    assert (stable.member_epoch, stable.assigned) == (5, {T: {0: 5}})


#: A step of a group: which member, and what it does.
steps = st.lists(
    st.tuples(
        st.sampled_from(MEMBERS),
        st.sampled_from(("join", "beat", "beat", "silent beat", "leave", "topics", "restart")),
    ),
    max_size=40,
)


@given(steps, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_group_has_one_reader_per_partition_and_becomes_stable(steps_: list, random) -> None:  # type: ignore[no-untyped-def, type-arg]
    """Clients follow their responses; the assignor gives partitions to random members."""

    def assign(action: ComputeTarget) -> dict[str, PartitionSet]:
        target: dict[str, dict[bytes, tuple[int, ...]]] = {m: {} for m in action.members}
        for topic_id, image in action.topics.items():
            for partition in range(image.partition_count):
                own = target[random.choice(sorted(action.members))]
                own[topic_id] = (*own.get(topic_id, ()), partition)
        return target

    harness = ConsumerHarness(topics={"t": topic("t", 4)})
    harness.assignor = assign
    owned: dict[str, PartitionSet] = {}
    epochs: dict[str, int] = {}
    size = 4

    def ask(name: str, epoch: int, **fields: object) -> None:
        reply = harness.ask(name, epoch, **fields)
        assert reply.error is ErrorCode.NONE
        epochs[name] = reply.member_epoch
        if reply.assignment is not None:
            owned[name] = reply.assignment
        read = [(t, p) for each in owned.values() for t, ps in each.items() for p in ps]
        assert len(read) == len(set(read)), f"two members read a partition: {owned}"

    for name, step in steps_:
        if step == "join":
            owned[name] = {}
            ask(name, 0, **joining("t"))
        elif step == "topics":
            size += 1
            harness.change_topics(topic("t", size))
        elif step == "restart":
            harness.restart()
        elif name in epochs:
            if step == "leave":
                del owned[name], epochs[name]
                assert harness.leave(name).error is ErrorCode.NONE
            else:
                ask(name, epochs[name], owned=owned[name] if step == "beat" else None)
    for _ in range(5):
        for name in epochs:
            ask(name, epochs[name], owned=owned[name])
    if epochs:
        assert harness.epochs[0] == "Stable"
        assert sum(len(p) for each in owned.values() for p in each.values()) == size
