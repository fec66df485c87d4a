"""Rule ``consumer-requests``: heartbeats of the consumer protocol are as few and small as possible.

- A member that reports nothing sends its next heartbeat only after the heartbeat interval, or after
  a third of its shorter timeout. After a refused commit it checks its membership at once.
- A member repeats all fields only on a new connection, or after a heartbeat that was not accepted.
- A member reports its partitions again only if they changed, or if it received an assignment since
  its last report.
- A response has an assignment only if the heartbeat changed it, or had all fields.

KIP-848 defines which fields a heartbeat omits. Without these rules a group would still be correct,
but its traffic would grow unnoticed.
"""

from __future__ import annotations

from typing import Final

from partage.lab.checkers.consumer_epochs import reported_partitions
from partage.lab.checkers.consumer_group_log import LogChangeKey, LoggedGroup, LoggedPartition
from partage.lab.checkers.consumer_group_states import ConsumerGroupStates
from partage.lab.history import (
    History,
    MemberAssignmentReceived,
    MemberHeartbeatSent,
    RequestReceived,
    ResponseSent,
    RuleViolationError,
)
from partage.lab.names import CONSUMER_GROUP, ROGUE_MEMBER
from partage.model.settings import GroupSettings
from partage.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from partage.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse

_ASSIGNMENT: Final = 8


class ConsumerRequestsChecker:
    """Compares each heartbeat with the earlier ones of its process and with their responses."""

    def __init__(
        self, history: History, states: ConsumerGroupStates, settings: GroupSettings
    ) -> None:
        self._interval_ms = settings.consumer.heartbeat_interval_ms
        self._session_ms = settings.consumer.session_timeout_ms
        self._rebalance_ms: dict[str, int] = {}  # the rebalance timeout of each client
        self._sent_ms: dict[str, int] = {}  # the last heartbeat of each process
        self._refused_commits: set[str] = set()  # clients that have not checked their membership
        self._connections: dict[str, int] = {}  # the newest of each client
        self._rejected: set[str] = set()  # clients whose last heartbeat was not accepted
        self._reports: dict[str, frozenset[LoggedPartition]] = {}  # accepted, by client
        self._may_report: set[str] = set()
        self._written_ms: dict[str, int] = {}  # the last assignment record of each member
        states.on_record(self._on_record)
        history.subscribe(MemberHeartbeatSent, self._on_sent)
        history.subscribe(MemberAssignmentReceived, self._on_received)
        history.subscribe(RequestReceived, self._on_request)
        history.subscribe(ResponseSent, self._on_response)

    def _on_record(
        self, at_ms: int, key: LogChangeKey, before: LoggedGroup, after: LoggedGroup
    ) -> None:
        if key.type == _ASSIGNMENT:
            self._written_ms[key.name] = at_ms

    def _on_sent(self, entry: MemberHeartbeatSent) -> None:
        name = entry.process
        before_ms = self._sent_ms.get(name)
        self._sent_ms[name] = entry.at_ms
        if entry.reports_change or before_ms is None:
            return
        timeout_ms = min(self._session_ms, self._rebalance_ms.get(name, self._session_ms))
        if entry.at_ms - before_ms < min(self._interval_ms, timeout_ms // 3):
            if name not in self._refused_commits:
                _break(f"{name} sends a heartbeat {entry.at_ms - before_ms} ms after another one")
            self._refused_commits.discard(name)

    def _on_received(self, entry: MemberAssignmentReceived) -> None:
        self._may_report.add(entry.process)

    def _on_request(self, entry: RequestReceived) -> None:
        request, client = entry.message, entry.client
        if not isinstance(request, ConsumerGroupHeartbeatRequest) or client == ROGUE_MEMBER:
            return
        newest = self._connections.get(client, -1)
        if entry.connection < newest:
            return
        self._connections[client] = entry.connection
        if request.rebalance_timeout_ms != -1:
            self._rebalance_ms[client] = request.rebalance_timeout_ms
        if entry.connection > newest or request.member_epoch <= 0:
            self._may_report.add(client)
            return
        if request.rebalance_timeout_ms != -1:
            if client not in self._rejected:
                _break(f"{request} of {client} has all fields, which the coordinator knows")
            return
        owned = reported_partitions(request.topic_partitions)
        if owned is None or client in self._may_report or owned != self._reports.get(client):
            return
        _break(f"{request} of {client} reports the same partitions again")

    def _on_response(self, entry: ResponseSent) -> None:
        request, response, client = entry.request.message, entry.message, entry.request.client
        match response:
            case OffsetCommitResponse() if isinstance(request, OffsetCommitRequest):
                codes = [each.error_code for topic in response.topics for each in topic.partitions]
                if request.group_id == CONSUMER_GROUP and any(codes):
                    self._refused_commits.add(client)
            case ConsumerGroupHeartbeatResponse():
                assert isinstance(request, ConsumerGroupHeartbeatRequest)
                if response.error_code:
                    self._rejected.add(client)
                elif request.member_epoch > 0:
                    self._on_accepted(entry, request, response)

    def _on_accepted(
        self,
        entry: ResponseSent,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
    ) -> None:
        client, is_full = entry.request.client, request.rebalance_timeout_ms != -1
        if entry.request.connection == self._connections.get(client):
            self._rejected.discard(client)
            owned = reported_partitions(request.topic_partitions)
            if owned is not None:
                self._reports[client] = owned
                if not is_full:  # a full one may repeat the report of a member that has yet to add
                    self._may_report.discard(client)
        written_ms = self._written_ms.get(request.member_id, -1)
        if response.assignment is not None and not is_full and written_ms < entry.request.at_ms:
            _break(f"{request.member_id} gets an assignment that did not change")


def _break(description: str) -> None:
    raise RuleViolationError("consumer-requests", description)
