"""Fault injection for a `ThreadedBroker`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from partage.bridge import API_ADAPTERS
from partage.broker.broker import Broker
from partage.broker.coordination.shard_host import ShardHost
from partage.broker.net.inbound_request import InboundRequest
from partage.broker.transactions.transaction_shard_host import TransactionShardHost
from partage.model.errors import ErrorCode
from partage.testing.broker_loop import BrokerLoop
from partage.testing.request_interceptor import (
    FaultRule,
    HeldResponse,
    RequestInterceptor,
    UnusedFaultError,
    api_key,
    error_code,
    respond_with_error,
    rewrite_response,
)
from partage.testing.transaction_faults import TransactionFaults
from partage.wire.apis.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from partage.wire.apis.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from partage.wire.apis.end_txn import END_TXN
from partage.wire.apis.find_coordinator import FIND_COORDINATOR
from partage.wire.apis.metadata import METADATA, MetadataResponse

_TRANSACTION_APIS = (
    ADD_PARTITIONS_TO_TXN.key,
    ADD_OFFSETS_TO_TXN.key,
    END_TXN.key,
)
#: Interval at which `Faults.expire` checks whether the member has joined.
_POLL_S = 0.002


class Faults:
    """``broker.faults`` of a `ThreadedBroker`. When a method returns, its fault is active.

    ``transactions`` has the faults of transactions.

    APIs and error codes have Kafka's names (``"JoinGroup"``, ``"REBALANCE_IN_PROGRESS"``).
    ``client_id`` restricts a fault to clients with this ``client.id``.

    A test fails if a fault is required and did not happen.
    """

    def __init__(self, broker: Broker, loop: BrokerLoop) -> None:
        self._broker = broker
        self._loop = loop
        self._interceptor = RequestInterceptor()
        self._held: list[HeldResponse] = []
        self._coordinator_rules: list[FaultRule] = []
        self.transactions = TransactionFaults(broker, loop)
        broker.server.intercept(self._interceptor.wrap)

    def members(self, group_id: str) -> dict[str, str]:
        """Return the current members of a group: client ids by member id."""
        return self._loop.call(lambda: self._members(group_id))

    def expire(
        self,
        group_id: str,
        *,
        member_id: str | None = None,
        client_id: str | None = None,
        within_s: float = 10.0,
    ) -> str:
        """Expire a member's session, as if it had sent no heartbeat in time.

        Args:
            group_id: the group.
            member_id: the member, if it is known.
            client_id: its ``client.id``, if the group has one such member.
            within_s: how long to wait until the member has joined.

        Returns:
            The member id.

        Raises:
            LookupError: no member or several members match.
            RuntimeError: called in a coroutine; `expire_async` is for these.
        """
        return self._loop.wait(
            lambda: self._expire(group_id, member_id, client_id, within_s),
            blocking="expire()",
            awaitable="faults.expire_async(...)",
        )

    async def expire_async(
        self,
        group_id: str,
        *,
        member_id: str | None = None,
        client_id: str | None = None,
        within_s: float = 10.0,
    ) -> str:
        """Expire a member's session without blocking the event loop; see `expire`.

        Raises:
            LookupError: no member or several members match.
        """
        work = self._expire(group_id, member_id, client_id, within_s)
        return await self._loop.wait_async(work)

    async def _expire(
        self, group_id: str, member_id: str | None, client_id: str | None, within_s: float
    ) -> str:
        clock = asyncio.get_running_loop().time
        give_up = clock() + within_s
        selection = {"member_id": member_id, "client_id": client_id}
        named = [f"{name}={value!r}" for name, value in selection.items() if value is not None]
        wanted = f" with {', '.join(named)}" if named else ""
        while not (found := self._expire_one(group_id, member_id, client_id)):
            if clock() > give_up:
                raise LookupError(f"group {group_id!r} has no member{wanted} after {within_s:g} s")
            await asyncio.sleep(_POLL_S)
        if len(found) > 1:
            raise LookupError(f"group {group_id!r} has several members{wanted}: {found}")
        return found[0]

    def _members(self, group_id: str) -> dict[str, str]:
        shard = self._broker.coordinator.host_of(group_id).shard
        group = None if shard is None else shard.groups.get(group_id)
        members = () if group is None else group.members_by_id.values()
        return {each.id: each.client_id for each in members}

    def _expire_one(self, group_id: str, member_id: str | None, client_id: str | None) -> list[str]:
        found = [
            member
            for member, client in self._members(group_id).items()
            if member_id in (None, member) and client_id in (None, client)
        ]
        if len(found) == 1:
            self._broker.coordinator.host_of(group_id).expire_session(group_id, found[0])
        return found

    def hold(
        self, api: str, *, client_id: str | None = None, required: bool = True
    ) -> HeldResponse:
        """Hold the response to the next request of an API until it is released.

        The request is served. As always, later requests of the same connection wait behind it.

        Args:
            api: the API, such as ``"JoinGroup"``.
            client_id: the client; by default the first that sends such a request.
            required: True if the test must fail when no request arrives before the release.

        Returns:
            The held response, also a context manager that releases it.
        """
        held = HeldResponse(self._loop, lambda: self._interceptor.withdraw(rule))
        call = f"hold({_arguments(api, client_id=client_id)})"
        rule = FaultRule(api_key(api), client_id, held.intercept, call=call, is_required=required)
        self._add(rule)
        self._held.append(held)
        return held

    def fail(
        self,
        api: str,
        error: str | int,
        *,
        client_id: str | None = None,
        times: int = 1,
        required: bool = True,
    ) -> None:
        """Respond to the next requests of an API with an error code.

        Group requests and Produce have no effect; requests of other APIs are served before.

        Args:
            api: the API, such as ``"OffsetCommit"``.
            error: the error by its name in Kafka, or its number.
            client_id: the client; by default all clients.
            times: the number of requests.
            required: True if the test must fail when fewer than ``times`` requests arrive.

        Raises:
            ValueError: an argument is invalid. For an unknown name, the message has the most
                similar one.
        """
        if times < 1:
            raise ValueError(f"times={times}: at least one request must fail")
        code = error_code(error)
        call = f"fail({_arguments(api, code.name, client_id=client_id)})"
        self._add(
            FaultRule(
                api_key(api), client_id, respond_with_error(code), times, times, call, required
            )
        )

    def _add(self, rule: FaultRule) -> None:
        self._loop.call(lambda: self._interceptor.rules.append(rule))

    def _remove(self, rule: FaultRule) -> None:
        self._loop.call(lambda: self._interceptor.remove([rule]))

    @property
    def pending(self) -> int:
        """Number of requests and verifications that are still to be held or to fail."""
        return self._loop.call(
            lambda: (
                sum(each.remaining or 0 for each in self._interceptor.rules)
                + self.transactions.pending
            )
        )

    def clear(self) -> None:
        """Remove all faults that have not happened yet, required ones too; a killed coordinator
        stays killed.
        """

        def clearing() -> None:
            self._interceptor.forget(self._coordinator_rules)
            self.transactions.clear()

        self._loop.call(clearing)

    def reset(self) -> None:
        """Remove all faults: send the held responses, and revive a killed coordinator."""
        self.clear()
        held, self._held = self._held, []
        for response in held:
            response.release()
        self.transactions.reset()
        if self._coordinator_rules:
            self.revive_coordinator()

    def waive(self) -> None:
        """Let the faults that have not happened yet be unused; they stay active.

        The pytest plugin calls this after a test that has not passed.
        """
        self._interceptor.waive()
        self.transactions.waive()

    def check_used(self) -> None:
        """Raise if a required fault has not happened.

        The pytest plugin calls this after each test that has passed.

        Raises:
            UnusedFaultError: too few requests arrived; the message lists the faults.
        """
        unused = (
            self._unused()
            if self._loop.is_closed  # the test has stopped the broker
            else self._loop.call(self._unused)
        )
        if unused:
            listed = "".join(f"\n  {each}" for each in unused)
            raise UnusedFaultError(
                f"the test injected faults that did not happen:{listed}\n"
                "Pass required=False if a fault need not happen, or call faults.clear()."
            )

    def _unused(self) -> list[str]:
        return self._interceptor.unused() + self.transactions.unused()

    def disconnect(self, *, client_id: str | None = None) -> int:
        """Close connections abruptly; return how many there were."""

        def abort_connections() -> int:
            matching = [
                each
                for each in self._broker.server.connections
                if client_id is None or self._interceptor.clients.get(each) == client_id
            ]
            for each in matching:
                each.abort()
            return len(matching)

        return self._loop.call(abort_connections)

    def kill_coordinator(self) -> None:
        """Drop the state of groups and transactions from memory, as if the coordinator's machine
        had failed.

        Until `revive_coordinator`, FindCoordinator fails with COORDINATOR_NOT_AVAILABLE; requests
        of groups and transactions fail with NOT_COORDINATOR. Topics are still served.
        """
        if self._coordinator_rules:
            raise RuntimeError("the coordinator is already killed; call revive_coordinator() first")
        not_coordinator = respond_with_error(ErrorCode.NOT_COORDINATOR)
        self._coordinator_rules = [
            FaultRule(key, None, not_coordinator, None)
            for key in (*API_ADAPTERS, *_TRANSACTION_APIS)
        ]
        not_available = respond_with_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._coordinator_rules.append(FaultRule(FIND_COORDINATOR.key, None, not_available, None))

        def killing() -> None:
            self._interceptor.rules[:0] = self._coordinator_rules
            for host in self._hosts():
                host.unload()

        self._loop.call(killing)

    def _hosts(self) -> list[ShardHost | TransactionShardHost]:
        return [*self._broker.coordinator.hosts, *self._broker.transactions.hosts]

    def revive_coordinator(self) -> None:
        """Load all groups and transactions from the log; until that is done, requests fail with
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        rules, self._coordinator_rules = self._coordinator_rules, []
        if not rules:
            raise RuntimeError("the coordinator is not killed; call kill_coordinator() first")

        def reviving() -> None:
            self._interceptor.remove(rules)
            for host in self._hosts():
                host.load()

        self._loop.call(reviving)

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
        partition_counts = self._loop.call(
            lambda: {each.name: each.partition_count for each in self._broker.log_manager.topics()}
        )
        rule = FaultRule(
            METADATA.key,
            client_id,
            rewrite_response(
                lambda inbound, response: _restricted_to(inbound, response, partition_counts)
            ),
        )
        rule.remaining = None
        self._add(rule)
        try:
            yield
        finally:
            self._remove(rule)


def _arguments(*positional: str, client_id: str | None) -> str:
    named = [] if client_id is None else [f"client_id={client_id!r}"]
    return ", ".join([*map(repr, positional), *named])


def _without_leaders(response: MetadataResponse, error: ErrorCode) -> MetadataResponse:
    for topic in response.topics:
        topic.error_code, topic.partitions = error, []
    return response


def _restricted_to(
    inbound: InboundRequest, response: MetadataResponse, partition_counts: dict[str, int]
) -> MetadataResponse:
    """Remove topics and partitions that are not in ``partition_counts``."""
    if inbound.message.topics is None:
        response.topics = [each for each in response.topics if each.name in partition_counts]
    for topic in response.topics:
        known = partition_counts.get(topic.name or "", 0)
        if not known and not topic.error_code:
            topic.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic.partitions = topic.partitions[:known]
    return response
