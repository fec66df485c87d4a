"""Rule ``group-migrations``: the type of a group follows the migration policy.

- A classic group with members becomes a consumer group only if the policy allows upgrades. Its
  generation becomes the epoch, and each member keeps the partitions of its last assignment. It must
  give up those of topics to which it no longer subscribes.
- A consumer group becomes a classic group only if the policy allows downgrades. Its epoch becomes
  the generation. Only members with the classic protocol stay, and they keep their partitions.
- No consumer group consists of members with the classic protocol if the policy allows downgrades
  and a classic group may have that many members. If the policy is ``disabled``, none has any.
"""

from __future__ import annotations

from typing import Final

from partage.coordinator.records import GroupRecord
from partage.lab.checkers.assignments import decode_partitions
from partage.lab.checkers.consumer_group_log import LogChangeKey, LoggedGroup
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.history import History, RuleViolationError
from partage.model.settings import GroupSettings, MigrationPolicy

#: The policies that allow upgrades, and those that allow downgrades.
UPGRADING: Final = (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)
DOWNGRADING: Final = (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)

_RULE: Final = "group-migrations"
_GROUP: Final = 3


class GroupMigrationsChecker:
    """Compares each group that changes its type with the group that it replaces."""

    def __init__(
        self, history: History, states: ConsumerGroupStates, settings: GroupSettings
    ) -> None:
        self._states = states
        self._policy = settings.consumer.migration_policy
        self._members_max = settings.members_max
        states.on_record(self._on_record)
        states.on_downgrade(self._on_downgrade)
        states.on_append_end(self._check_type)

    def _on_record(
        self, at_ms: int, key: LogChangeKey, before: LoggedGroup, after: LoggedGroup
    ) -> None:
        replaced = self._states.replaced
        is_first = key.type == _GROUP and before.epoch is None and after.epoch is not None
        if is_first and replaced is not None and replaced.members:
            self._check_upgrade(replaced, after, self._states.unknown_topics)

    def _check_upgrade(
        self, replaced: GroupRecord, group: LoggedGroup, unknown: frozenset[bytes]
    ) -> None:
        if self._policy not in UPGRADING:
            _break(f"the policy {self._policy} forbids the upgrade of {replaced}")
        if group.epoch != max(replaced.generation, 1):
            _break(f"generation {replaced.generation} becomes epoch {group.epoch}")
        for old in () if replaced.awaiting_sync else replaced.members:
            member = group.members.get(old.member_id)
            if member is None:
                continue  # it has left since the generation was stored
            assigned = decode_partitions(old.assignment)
            had = self._states.to_ids(assigned)
            wanted = self._states.to_ids(each for each in assigned if each[0] in member.topics)
            has = self._states.with_current_ids(member.assigned)
            different = (has ^ wanted) | (had - member.held)
            if any(topic_id not in unknown for topic_id, _ in different):
                _break(f"an upgrade changes the partitions of {old.member_id}: {had} -> {has}")

    def _on_downgrade(self, group: LoggedGroup, classic: GroupRecord) -> None:
        if self._policy not in DOWNGRADING:
            _break(f"the policy {self._policy} forbids the downgrade to {classic}")
        if classic.generation != group.epoch:
            _break(f"epoch {group.epoch} becomes generation {classic.generation}")
        for member in classic.members:
            old = group.stored_members().get(member.member_id)
            if old is None or not old.is_classic:
                raise RuleViolationError(
                    _RULE, f"{member.member_id} does not use the classic protocol: {old}"
                )
            had = self._states.with_current_ids(old.held)
            has = self._states.to_ids(decode_partitions(member.assignment))
            if had != has:
                _break(f"a downgrade changes the partitions of {member.member_id}: {had} -> {has}")

    def _check_type(self) -> None:
        members = self._states.appended.stored_members()
        is_mixed = any(member.is_classic for member in members.values())
        if is_mixed and self._policy is MigrationPolicy.DISABLED:
            _break(f"the policy {self._policy} forbids members of both protocols: {list(members)}")
        if (
            members
            and all(member.is_classic for member in members.values())
            and self._policy in DOWNGRADING
            and len(members) <= self._members_max
        ):
            _break(f"a consumer group has only members with the classic protocol: {list(members)}")


def _break(description: str) -> None:
    raise RuleViolationError(_RULE, description)
