"""The production broker of a world, whose requests, logs and shards the world records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from partage.broker.broker import Broker
from partage.broker.net.inbound_request import Handler, InboundRequest
from partage.lab import history
from partage.lab.brokers.broker_transport import BrokerTransport
from partage.lab.brokers.group_shards import FaultyGroupActions, GroupShardHost
from partage.lab.brokers.observed_response import (
    ObservedResponse,
    observe_response,
    original_connection,
)
from partage.lab.brokers.recorded_logs import RecordedLogWriter, record_logs
from partage.lab.brokers.shell import BrokerShell
from partage.lab.brokers.transaction_shards import (
    FaultyMarkerWriter,
    RecordedTransactionHost,
    delay_admissions,
)
from partage.lab.context import WorldContext
from partage.lab.names import GROUPS


def recorded_broker_class(shell: BrokerShell) -> type[Broker]:
    """Return the class of a broker whose requests, logs and shards a world records."""

    class Host(GroupShardHost):
        entries = _WorldEntries(shell.world)
        owner = shell

    class Writer(RecordedLogWriter):
        owner = shell

    class TransactionHost(RecordedTransactionHost):
        owner = shell

    class Markers(FaultyMarkerWriter):
        owner = shell

    class Actions(FaultyGroupActions):
        owner = shell

    class RecordedBroker(Broker):
        shard_host_class = Host
        group_actions_class = Actions
        log_writer_class = Writer
        transaction_host_class = TransactionHost
        marker_writer_class = Markers

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            record_logs(shell, self)
            serve, server = self.server.serve, cast(Any, self.server)

            def serve_recorded(handlers: Mapping[int, Handler]) -> None:
                delay_admissions(shell, self.transactions)
                serve(
                    {
                        key: _recording_handler(shell, self, handler)
                        for key, handler in handlers.items()
                    }
                )

            server.serve = serve_recorded

    return RecordedBroker


class _WorldEntries:
    """Appends entries to the history of a world."""

    def __init__(self, world: WorldContext) -> None:
        self._world = world

    def append(self, entry: history.HistoryEntry) -> None:
        """Append an entry."""
        self._world.append_history(entry)


def _recording_handler(owner: BrokerShell, broker: Broker, handler: Handler) -> Handler:
    """Return a handler that records requests and responses."""

    def handle(inbound: InboundRequest) -> None:
        connection: Any = original_connection(inbound)
        transport: BrokerTransport = connection._transport
        group_id = _request_group_id(inbound.message)
        assert transport.connection is not None, "a client has connected"
        entry = owner.world.record_request(
            transport.connection,
            transport.arrived_ms,
            inbound.api.key,
            inbound.version,
            inbound.message,
            broker_id=owner.broker_id,
            is_loaded=broker.coordinator.host_of(group_id).is_loaded,
            broker_ms=inbound.at_ms,
            at_ms=owner.world.now_ms - (broker._clock.now_ms() - inbound.at_ms),
        )

        def answered(response: ObservedResponse) -> None:
            if not response.is_empty and not owner.disk.has_lost_power:
                owner.world.record_response(entry, response.message)

        observe_response(inbound, answered)
        handler(inbound)

    return handle


def _request_group_id(message: Any) -> str:
    """Return the group id of a request, the first of several; a default where it names none."""
    # OffsetFetch has `groups` from v8 on. In DescribeGroups and DeleteGroups they are names.
    groups = getattr(message, "groups", ()) or getattr(message, "groups_names", ())
    group_id = getattr(groups[0], "group_id", groups[0]) if groups else ""
    return group_id or getattr(message, "group_id", "") or GROUPS[0]
