"""Rule ``generations``: a group's generation grows by one, and each stored generation is valid.

This holds across crashes, log failures and loads. The leader is a member, every member has metadata
for the chosen protocol, instance ids are unique, and the group does not exceed its maximum size. A
removed group starts again.
"""

from __future__ import annotations

from partage.coordinator.records import GroupRecord, GroupTombstone
from partage.lab.checkers.ledger import Ledger
from partage.lab.history import History, RuleViolationError
from partage.lab.names import CONSUMER_GROUP
from partage.lab.offset_log import LogChange
from partage.model.settings import GroupSettings


class GenerationsChecker:
    """Compares each stored group with the previous one."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._members_max = settings.members_max
        self._before: dict[str, GroupRecord] = {}
        ledger.on_durable(self._judge)

    def _judge(self, record: LogChange) -> None:
        if isinstance(record, GroupTombstone):
            self._before.pop(record.group_id, None)
        elif isinstance(record, GroupRecord):
            self._judge_group(record)
            self._before[record.group_id] = record

    def _judge_group(self, saved: GroupRecord) -> None:
        before = self._before.get(saved.group_id)
        known = 0 if before is None else before.generation
        starts = saved.awaiting_sync or not saved.members
        if before is None and not starts and saved.group_id == CONSUMER_GROUP:
            known = saved.generation  # a downgrade, for which `group-migrations` has rules
        expected = known + 1 if starts else known
        if saved.generation != expected:
            raise RuleViolationError(
                "generations", f"generation {saved.generation} follows {known} in {saved}"
            )
        if before is not None and not starts:
            self._judge_succession(before, saved)
        ids = [m.member_id for m in saved.members]
        instances = [m.instance_id for m in saved.members if m.instance_id is not None]
        if len(set(ids)) < len(ids) or len(set(instances)) < len(instances):
            raise RuleViolationError("generations", f"duplicate member or instance id: {saved}")
        if len(ids) > self._members_max:
            raise RuleViolationError(
                "generations", f"{len(ids)} members exceed the maximum of {self._members_max}"
            )
        # The group of a downgrade has no leader until the join phase that follows.
        is_downgrade = saved.leader is None and before is None and not saved.awaiting_sync
        if ids and saved.leader not in ids and not is_downgrade:
            raise RuleViolationError("generations", f"the leader is not a member: {saved}")
        if not all(m.subscription for m in saved.members):
            raise RuleViolationError(
                "generations", f"a member does not support {saved.protocol}: {saved}"
            )

    def _judge_succession(self, before: GroupRecord, saved: GroupRecord) -> None:
        """Check that members and assignments stay the same within a generation.

        A static member may get another member id.
        """

        def places(group: GroupRecord) -> list[str]:
            return sorted(m.instance_id or m.member_id for m in group.members)

        if places(before) != places(saved):
            raise RuleViolationError(
                "generations", f"the members differ within a generation: {saved} after {before}"
            )
        if not before.awaiting_sync:
            had = {m.instance_id or m.member_id: m.assignment for m in before.members}
            has = {m.instance_id or m.member_id: m.assignment for m in saved.members}
            if had != has:
                raise RuleViolationError(
                    "generations",
                    f"the assignments differ within a generation: {saved} after {before}",
                )
