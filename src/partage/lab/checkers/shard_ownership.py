"""Rule ``shard-ownership``: only the broker that owns a shard responds for its groups.

A broker that dropped a shard, or does not know yet that another broker acquired it, may only
respond that it is not the coordinator. A lease guarantees this, for errors too. Requests that
arrived while the broker was loading are not checked: they all get the same error.

If an operator removes the registration of a broker, another broker takes its shards although its
lease is valid. It must give them up soon after it learns of the removal.
"""

from __future__ import annotations

from partage.lab.checkers.group_in_response import group_in_response
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
from partage.model.settings import GroupSettings
from partage.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from partage.wire.apis.describe_groups import DescribeGroupsRequest


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
        names: list[str] = []
        if isinstance(message, DescribeGroupsRequest):
            names = message.groups
        elif isinstance(message, ConsumerGroupDescribeRequest):
            names = message.group_ids
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
    if not asked.is_loaded:
        return None
    return group_in_response(asked.message, asked.version, entry.message)
