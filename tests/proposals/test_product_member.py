"""The product's member in the simulator of the proposals."""

from __future__ import annotations

from partage.member import events, outcome
from partage.member.settings import MemberSettings
from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.product.member import Outcome, ProductMember

READ, UNREAD = TopicPartition("t", 0), TopicPartition("t", 1)


class OwningCore:
    """A state machine that owns two partitions, and whose next action the test sets."""

    owned = deliverable = frozenset({READ, UNREAD})
    commit_identity = None
    action: outcome.Action | None = None

    def handle(self, event: events.Event) -> outcome.Outcome:
        result = outcome.Outcome()
        if self.action is not None:
            result.actions.append(self.action)
            self.action = None
        return result


class Member(ProductMember):
    """A member around an `OwningCore`."""

    _is_core_stable = True

    def _on_metadata_refreshed(self, result: Outcome, counts: dict[str, int]) -> None:
        """Do nothing."""

    def _on_metadata(self, result: Outcome, counts: dict[str, int]) -> None:
        """Do nothing."""


def test_revoked_partition_without_a_position_is_not_committed() -> None:
    """Its last position is from an earlier assignment, and other members have committed since."""
    core = OwningCore()
    settings = MemberSettings(group_id="g", protocol_type="consumer")
    member = Member(core, settings, frozenset({"t"}), 5_000)
    member._known = frozenset({READ})  # the offset of the other one is still being fetched
    core.action = outcome.CallListener(
        serial=1, callback=outcome.ListenerCallback.REVOKED, partitions=(READ, UNREAD)
    )
    actions = member.handle(machine.TimerFired(at_ms=0, key="retry")).actions
    assert actions == [machine.CommitDue(partitions=frozenset({READ}))]
