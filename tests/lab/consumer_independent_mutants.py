"""Mutants of consumer groups and their members that were written from the code, before the other
mutants of the coordinator were read.
"""

from __future__ import annotations

from typing import Any, Final

from .mutant import Mutant

_C = "partage.coordinator.consumer_group"
_M = "partage.member.consumer_group"

#: The worlds in which these mutants are searched for: one classic member, and three of the group.
_WORLDS: Final[dict[str, Any]] = {"brokers": 1, "members": 1, "consumer_members": 3}


def _mutant(name: str, module: str, original: str, replacement: str) -> Mutant:
    return Mutant(name, module, original, replacement, _WORLDS)


CONSUMER_INDEPENDENT_MUTANTS: Final = (
    _mutant(
        "a heartbeat with few fields resets the rebalance timeout",
        f"{_C}.heartbeat",
        "rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms",
        "rebalance_timeout_ms=timeout_ms",
    ),
    _mutant(
        "an exchange of as many partitions is not sent",
        f"{_C}.heartbeat",
        "{topic_id: frozenset(epochs) for topic_id, epochs in assignment.assigned.items()}",
        "{each: frozenset((len(part),)) for each, part in assignment.assigned.items()}",
    ),
    _mutant(
        "an older commit of a partition to give up is refused",
        f"{_C}.offsets",
        "    for held in (assignment.assigned, assignment.pending_revocation):",
        "    for held in (assignment.assigned,):",
    ),
    _mutant(
        "topics that were created during a match count as matched",
        f"{_C}.regexes",
        "    group.regexes_version = event.version\n",
        "    group.regexes_version = catalogue.version\n",
    ),
    _mutant(
        "the short path of heartbeats ignores changed topics",
        f"{_C}.unchanged_heartbeat",
        "        and group.metadata_version == catalogue.version\n",
        "",
    ),
    _mutant(
        "a target counts for an epoch that began during its computation",
        f"{_C}.target",
        "            assignment_epoch=event.group_epoch,\n",
        "            assignment_epoch=group.epoch,\n",
    ),
    _mutant(
        "the loss of a former connection drops the new one",
        f"{_M}.state_machine",
        "    if event.serial == member.link.coordinator_serial:\n",
        "    if member.link.coordinator_serial is not None:\n",
    ),
    _mutant(
        "new partitions are confirmed before their callback ends",
        f"{_M}.member",
        "            if to_add:\n                return\n",
        "",
    ),
    _mutant(
        "a leave that a former coordinator refuses is not repeated",
        f"{_M}.state_machine",
        "        case HeartbeatReaction.FIND_COORDINATOR:\n"
        "            member.drop_coordinator(context)\n",
        "",
    ),
    _mutant(
        "a dynamic member that left joins again under its former id",
        f"{_M}.member",
        "        if self._needs_member_id and not self.is_static:\n",
        "        if self._needs_member_id and self.is_static is None:\n",
    ),
)
