"""Rule ``shard-ownership``: only the broker that owns a shard responds for its groups.

A broker that dropped a shard, or does not know yet that another broker acquired it, may only
respond that it is not the coordinator. A lease guarantees this, for errors too. Requests that
arrived while the broker was loading are not checked: they all get the same error.

If an operator removes the registration of a broker, another broker takes its shards although its
lease is valid. It must give them up soon after it learns of the removal.
"""

from __future__ import annotations

from typing import Any, Final

from partage.lab.checkers.ledger import Ledger
from partage.lab.history import (
    History,
    MemberExpired,
    RegistrationMissed,
    RegistrationRemoved,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
)
from partage.model.errors import ErrorCode
from partage.model.settings import GroupSettings
from partage.wire.apis.delete_groups import DeleteGroupsResponse
from partage.wire.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from partage.wire.apis.heartbeat import HeartbeatResponse
from partage.wire.apis.join_group import JoinGroupResponse
from partage.wire.apis.leave_group import LeaveGroupResponse
from partage.wire.apis.offset_commit import OffsetCommitResponse
from partage.wire.apis.offset_delete import OffsetDeleteResponse
from partage.wire.apis.offset_fetch import OffsetFetchResponse
from partage.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

_ABSENT: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
#: Errors that only a coordinator can know; other errors concern the request itself.
_SAYING: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)


class ShardOwnershipChecker:
    """Checks each response about a group against the owner of its shard."""

    def __init__(self, history: History, ledger: Ledger, settings: GroupSettings) -> None:
        self._ledger = ledger
        self._had: set[int] = set()  # requests for several groups whose broker owned the first one
        # until when a broker without a registration may act; None until it learns of the removal
        self._unregistered_until_ms: dict[int, int | None] = {}
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)
        history.subscribe(MemberExpired, self._on_expired)
        history.subscribe(RegistrationRemoved, self._on_registration_removed)
        history.subscribe(RegistrationMissed, self._on_registration_missed)

    def _on_registration_removed(self, entry: RegistrationRemoved) -> None:
        self._unregistered_until_ms[entry.broker] = None

    def _on_registration_missed(self, entry: RegistrationMissed) -> None:
        if self._unregistered_until_ms.get(entry.broker, 0) is None:
            self._unregistered_until_ms[entry.broker] = entry.gives_up_by_ms

    def _may_act(self, broker: int, group_id: str, at_ms: int) -> bool:
        unregistered_until_ms = self._unregistered_until_ms.get(broker, 0)
        if unregistered_until_ms is None or at_ms <= unregistered_until_ms:
            return True
        return self._ledger.may_own(broker, group_id)

    def _on_request(self, entry: RequestReceived) -> None:
        message = entry.message
        names = message.groups if isinstance(message, DescribeGroupsRequest) else ()
        if len(names) > 1 and self._ledger.may_own(entry.broker, names[0]):
            self._had.add(entry.serial)

    def _on_response(self, entry: ResponseSent) -> None:
        asked = entry.request
        if asked.serial in self._had:
            return  # its result for one group was valid at first and waited for the others
        group_id = coordinated_group(entry)
        if group_id is not None and not self._may_act(asked.broker, group_id, entry.at_ms):
            problem = f"broker {asked.broker}, which does not own {group_id}, responded to {asked}"
            raise RuleViolationError("shard-ownership", f"{problem}: {entry.message}")

    def _on_expired(self, entry: MemberExpired) -> None:
        if not self._may_act(entry.broker, entry.group_id, entry.at_ms):
            problem = f"broker {entry.broker}, which does not own {entry.group_id}, expired"
            raise RuleViolationError("shard-ownership", f"{problem} {entry.member_id}")


def coordinated_group(entry: ResponseSent) -> str | None:
    """Return the group about which a response says something that only its coordinator knows.

    Returns:
        The group id, the first of several; None if any broker may send this response.
    """
    asked = entry.request
    group_id = _group(asked.message, entry.message)
    if group_id is None or not asked.is_loaded or _lacks_protocol(asked):
        return None
    codes = _codes(entry.message)
    return group_id if codes & _SAYING and not codes & _ABSENT else None


def _lacks_protocol(asked: RequestReceived) -> bool:
    """Return True if any broker rejects the SyncGroup, with INCONSISTENT_GROUP_PROTOCOL.

    From version 5 on, it must have a protocol type and name. Kafka checks this before it asks the
    coordinator (KafkaApis).
    """
    message = asked.message
    if not isinstance(message, SyncGroupRequest) or asked.version < 5:
        return False
    return message.protocol_type is None or message.protocol_name is None


def _group(asked: Any, message: Any) -> str | None:
    """Return the group id of a response, the first of several; None if it has none."""
    match message:
        case HeartbeatResponse() | JoinGroupResponse() | SyncGroupResponse():
            return str(asked.group_id)
        case LeaveGroupResponse() | OffsetCommitResponse() | OffsetFetchResponse(groups=[]):
            return str(asked.group_id)
        case OffsetFetchResponse(groups=[group]):
            return group.group_id
        case DescribeGroupsResponse(groups=[group, *_]) | DeleteGroupsResponse(results=[group, *_]):
            return group.group_id
        case OffsetDeleteResponse():
            return str(asked.group_id)
    return None


def _codes(message: Any) -> set[int]:
    """Return all error codes of a response. Their location depends on the API version."""
    codes: set[int] = set()
    groups = getattr(message, "groups", ()) or getattr(message, "results", ())
    for one in (message, *groups[:1]):
        if hasattr(one, "error_code"):
            codes.add(one.error_code)
        for topic in getattr(one, "topics", ()):
            codes |= {p.error_code for p in topic.partitions}
    return codes
