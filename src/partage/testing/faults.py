"""Fault injection for a `ThreadedBroker`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from partage.bridge import API_ADAPTERS
from partage.broker.broker import Broker
from partage.broker.net.inbound_request import InboundRequest
from partage.model.errors import ErrorCode
from partage.testing.request_interceptor import (
    FaultRule,
    HeldResponse,
    RequestInterceptor,
    api_key,
    respond_with_error,
    rewrite_response,
)
from partage.wire.apis.find_coordinator import FIND_COORDINATOR
from partage.wire.apis.metadata import METADATA, MetadataResponse

T = TypeVar("T")


class LoopRunner(Protocol):
    """Runs a function on the broker's loop and returns its result."""

    def __call__(self, work: Callable[[], T], /) -> T: ...


class Faults:
    """``broker.faults`` of a `ThreadedBroker`. When a method returns, its fault is active.

    APIs and error codes have Kafka's names (``"JoinGroup"``, ``"REBALANCE_IN_PROGRESS"``).
    ``client_id`` restricts a fault to clients with this ``client.id``.
    """

    def __init__(self, broker: Broker, run: LoopRunner) -> None:
        self._broker = broker
        self._run = run
        self._interceptor = RequestInterceptor()
        self._coordinator_rules: list[FaultRule] = []
        broker.server.intercept(self._interceptor.wrap)

    def members(self, group_id: str) -> dict[str, str]:
        """Return the current members of a group: client ids by member id."""
        return self._run(lambda: self._members(group_id))

    def expire(
        self,
        group_id: str,
        *,
        member_id: str | None = None,
        client_id: str | None = None,
        within_s: float = 10.0,
    ) -> str:
        """Expire a member's session, as if it had sent no heartbeat in time; return its member id.

        Args:
            group_id: the group.
            member_id: the member, if it is known.
            client_id: its ``client.id``, if the group has one such member.
            within_s: how long to wait until the member has joined.

        Raises:
            LookupError: no member or several members match.
        """
        give_up = time.monotonic() + within_s
        while True:
            found = self._run(lambda: self._expire_one(group_id, member_id, client_id))
            if len(found) == 1:
                return found[0]
            wanted = f"member_id={member_id!r}, client_id={client_id!r}"
            if found:
                raise LookupError(f"group {group_id!r} has several members with {wanted}: {found}")
            if time.monotonic() > give_up:
                raise LookupError(f"group {group_id!r} has no member with {wanted}")
            time.sleep(0.002)

    def _members(self, group_id: str) -> dict[str, str]:
        shard = self._broker.coordinator.host_of(group_id).shard
        group = None if shard is None else shard.groups.get(group_id)
        return {} if group is None else {each.id: each.client_id for each in group.members.values()}

    def _expire_one(self, group_id: str, member_id: str | None, client_id: str | None) -> list[str]:
        found = [
            member
            for member, client in self._members(group_id).items()
            if member_id in (None, member) and client_id in (None, client)
        ]
        if len(found) == 1:
            self._broker.coordinator.host_of(group_id).expire_session(group_id, found[0])
        return found

    def hold(self, api: str, *, client_id: str | None = None) -> HeldResponse:
        """Hold the response to the next request of an API until it is released.

        The request is served. As always, later requests of the same connection wait behind it.
        """
        held = HeldResponse(self._run)
        self._add(FaultRule(api_key(api), client_id, held.intercept))
        return held

    def fail(
        self, api: str, error: str | ErrorCode, *, client_id: str | None = None, times: int = 1
    ) -> None:
        """Respond to the next requests of an API with an error code.

        Group requests and Produce have no effect; requests of other APIs are served before.
        """
        code = ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
        self._add(FaultRule(api_key(api), client_id, respond_with_error(code), times))

    def _add(self, *rules: FaultRule) -> None:
        self._run(lambda: self._interceptor.rules.extend(rules))

    def _remove(self, *rules: FaultRule) -> None:
        self._run(
            lambda: self._interceptor.rules.__setitem__(
                slice(None), [each for each in self._interceptor.rules if each not in rules]
            )
        )

    @property
    def pending(self) -> int:
        """Number of requests that are still to be held or to fail."""
        return self._run(lambda: sum(each.remaining or 0 for each in self._interceptor.rules))

    def clear(self) -> None:
        """Remove all faults that have not happened yet; a killed coordinator stays killed."""
        self._run(
            lambda: self._interceptor.rules.__setitem__(slice(None), list(self._coordinator_rules))
        )

    def cut(self, *, client_id: str | None = None) -> int:
        """Close connections abruptly; return how many there were."""

        def cutting() -> int:
            meant = [
                each
                for each in self._broker.server.connections
                if client_id is None or self._interceptor.clients.get(each) == client_id
            ]
            for each in meant:
                each.abort()
            return len(meant)

        return self._run(cutting)

    def kill_coordinator(self) -> None:
        """Drop the state of all groups from memory, as if the coordinator's machine had failed.

        Until `revive_coordinator`, FindCoordinator fails with COORDINATOR_NOT_AVAILABLE and group
        requests fail with NOT_COORDINATOR. Topics are still served.
        """
        if self._coordinator_rules:
            raise RuntimeError("the coordinator is already killed; call revive_coordinator() first")
        away = respond_with_error(ErrorCode.NOT_COORDINATOR)
        self._coordinator_rules = [FaultRule(key, None, away, None) for key in API_ADAPTERS]
        nobody = respond_with_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._coordinator_rules.append(FaultRule(FIND_COORDINATOR.key, None, nobody, None))

        def killing() -> None:
            self._interceptor.rules[:0] = self._coordinator_rules
            for host in self._broker.coordinator.hosts:
                host.unload()

        self._run(killing)

    def revive_coordinator(self) -> None:
        """Load all groups from the log; until that is done, requests fail with
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        rules, self._coordinator_rules = self._coordinator_rules, []
        if not rules:
            raise RuntimeError("the coordinator is not killed; call kill_coordinator() first")

        def reviving() -> None:
            self._interceptor.rules[:] = [
                each for each in self._interceptor.rules if each not in rules
            ]
            for host in self._broker.coordinator.hosts:
                host.load()

        self._run(reviving)

    @contextmanager
    def coordinator_down(self) -> Iterator[None]:
        """Call `kill_coordinator`, and `revive_coordinator` at the end."""
        self.kill_coordinator()
        try:
            yield
        finally:
            self.revive_coordinator()

    @contextmanager
    def metadata_unavailable(self, *, client_id: str | None = None) -> Iterator[None]:
        """Report all topics without a leader (LEADER_NOT_AVAILABLE)."""
        error = ErrorCode.LEADER_NOT_AVAILABLE
        rule = FaultRule(
            METADATA.key,
            client_id,
            rewrite_response(lambda _, response: _without_leaders(response, error)),
        )
        rule.remaining = None
        self._add(rule)
        try:
            yield
        finally:
            self._remove(rule)

    @contextmanager
    def stale_metadata(self, *, client_id: str | None = None) -> Iterator[None]:
        """Hide topics and partitions that are created from now on."""
        then = self._run(
            lambda: {each.name: each.partition_count for each in self._broker.log_manager.topics()}
        )
        rule = FaultRule(
            METADATA.key,
            client_id,
            rewrite_response(lambda inbound, response: _restricted_to(inbound, response, then)),
        )
        rule.remaining = None
        self._add(rule)
        try:
            yield
        finally:
            self._remove(rule)


def _without_leaders(response: MetadataResponse, error: ErrorCode) -> MetadataResponse:
    for topic in response.topics:
        topic.error_code, topic.partitions = error, []
    return response


def _restricted_to(
    inbound: InboundRequest, response: MetadataResponse, then: dict[str, int]
) -> MetadataResponse:
    """Remove topics and partitions that are not in ``then``."""
    if inbound.message.topics is None:
        response.topics = [each for each in response.topics if each.name in then]
    for topic in response.topics:
        known = then.get(topic.name or "", 0)
        if not known and not topic.error_code:
            topic.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic.partitions = topic.partitions[:known]
    return response
