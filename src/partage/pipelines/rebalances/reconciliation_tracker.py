"""Progress of the members of a consumer group to their target assignment."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from partage.coordinator.consumer_group.member import STATIC_LEAVE_EPOCH
from partage.pipelines.rebalances.partition_tracker import Partitions
from partage.pipelines.rebalances.rows import MemberRow, RebalanceRow
from partage.store.group_events import EventMember

_STABLE = "stable"


class _Revocation(msgspec.Struct, gc=False):
    """The time in which a member gave up partitions, in ms since the epoch."""

    member: MemberRow
    from_at: int
    to_at: int


class ReconciliationTracker:
    """The members of one group that have not reached the target, and their revocations.

    Attributes:
        group_epoch: The last known epoch of the group.
    """

    def __init__(self) -> None:
        self.group_epoch: int | None = None
        self._unreconciled: set[str] = set()
        self._absent: set[str] = set()
        self._revoking_since: dict[str, int] = {}
        self._revocations: list[_Revocation] = []  # of the current rebalance

    @property
    def is_complete(self) -> bool:
        """True if all members have reached the target."""
        return not self._unreconciled

    def join(self, name: str) -> None:
        """Apply that a member joined, or returned."""
        self._absent.discard(name)

    def start(self, members: Iterable[str]) -> None:
        """Expect all members to reach a new target, except absent ones."""
        self._unreconciled = {name for name in members if name not in self._absent}

    def step(
        self, member: MemberRow, progress: EventMember, target_epoch: int | None, at: int
    ) -> bool:
        """Apply a step of a member; return True if it has reached the target."""
        name = member.member
        self._absent.discard(name)
        if progress.revoking:
            self._revoking_since.setdefault(name, at)
        else:
            self._end_revocation(member, at)
        is_reconciled = progress.state == _STABLE and progress.member_epoch == target_epoch
        if is_reconciled:
            self._unreconciled.discard(name)
        return is_reconciled

    def suspend(self, member: MemberRow, at: int) -> None:
        """Apply that a static member left for a while: no member waits for it."""
        self.remove(member, at)
        self._absent.add(member.member)

    def remove(self, member: MemberRow, at: int) -> None:
        """Apply that a member left."""
        self._absent.discard(member.member)
        self._unreconciled.discard(member.member)
        self._end_revocation(member, at)

    def end(self, row: RebalanceRow) -> None:
        """Add the revocations to the rebalance that ends, and to the member that was the last."""
        self._unreconciled.clear()
        revocations, self._revocations = self._revocations, []
        if not revocations:
            return
        *others, last = sorted(revocations, key=lambda each: each.to_at)
        alone_since = max([last.from_at, *(each.to_at for each in others)])
        last.member.held_up_ms += max(last.to_at - alone_since, 0)
        row.last_to_revoke = last.member.member
        row.revoke_ms = max(each.to_at - each.from_at for each in revocations)

    def clear(self) -> None:
        """Forget all members."""
        self._unreconciled.clear()
        self._absent.clear()
        self._revoking_since.clear()
        self._revocations.clear()

    def _end_revocation(self, member: MemberRow, at: int) -> None:
        since = self._revoking_since.pop(member.member, None)
        if since is not None:
            revocation = _Revocation(member, since, max(at, since))
            member.revoking_ms += revocation.to_at - revocation.from_at
            self._revocations.append(revocation)


def is_absent(member: EventMember) -> bool:
    """True for a static member that left for a while."""
    return member.member_epoch == STATIC_LEAVE_EPOCH


def partitions_read(member: EventMember) -> Partitions:
    """Return the partitions that a member may read: those that it has or must still give up."""
    reads = dict(member.assigned or {})
    for topic, numbers in (member.revoking or {}).items():
        reads[topic] = [*reads.get(topic, ()), *numbers]
    return reads
