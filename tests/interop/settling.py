"""A group whose members join and end while records are produced."""

from __future__ import annotations

from interop.members import Peer, Team, produce
from interop.record_sets import Record
from polled_conditions import PATIENCE_S

#: Number of records of one wave.
RECORDS = 60


class Settling:
    """A team whose members read records while others join and end."""

    def __init__(self, team: Team, partitions: set[tuple[str, int]]) -> None:
        self.team = team
        self.produced: set[Record] = set()
        self._partitions = partitions

    def join(self, kind: str, **options: object) -> Peer:
        """Start a member, and wait until the group is settled."""
        name = f"m{len(self.team.members)}"
        settings = {"group_protocol": "consumer", "assignor": "uniform", **options}
        member = self.team.join(kind, name, **settings)
        self.settle()
        return member

    def leave(self, member: Peer) -> None:
        """Stop a member in an orderly way; the group does not settle yet."""
        member.terminate()
        member.check_orderly_end()

    def settle(self, timeout_s: float = PATIENCE_S) -> None:
        """Produce during the rebalance; wait until every record is read, every partition owned."""
        team = self.team
        wave = produce("confluent", team.bootstrap, team.topic, RECORDS, start=len(self.produced))
        self.produced |= wave
        team.wait_until_shared(self._partitions, timeout_s)
        team.wait_until(self._is_balanced, "the target is reached", PATIENCE_S)
        team.wait_until_consumed(self.produced)

    def _is_balanced(self) -> bool:
        """True if the target of ``uniform`` may be reached: each member has its fair share."""
        sizes = [len(member.history.owned_now()) for member in self.team.running]
        return max(sizes) - min(sizes) <= 1
