"""The transaction coordinator of a broker in a cluster, whose shards are in ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from partage.broker.clock import Clock
from partage.broker.coordination.state_store import StateStore
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.broker.transactions.admission_client import AdmissionClient, AdmissionRequest
from partage.broker.transactions.marker_writer import MarkerWriter
from partage.broker.transactions.transaction_coordinator import (
    PartitionsDone,
    TransactionCoordinator,
)
from partage.broker.transactions.transaction_shard_host import TransactionShardHost
from partage.model.errors import ErrorCode
from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.statemachine.linear_pattern import LinearPattern
from partage.transactions.replies import ListTransactionsReply


class ClusterTransactionCoordinator(TransactionCoordinator):
    """The coordinator of the transactional ids whose shards this broker owns.

    Args:
        stores: the stores of all shards.
        settings: the transaction settings.
        clock: the broker's clock.
        producer_ids: allocates producer ids that no other broker allocates.
        markers: writes markers, also to other brokers.
        admissions: asks the coordinators of other transactional ids.
        loaders: threads for loading.
        host_class: the class of the shards' hosts.
    """

    def __init__(
        self,
        stores: Sequence[StateStore],
        settings: TransactionSettings,
        clock: Clock,
        producer_ids: ProducerIdManager,
        markers: MarkerWriter,
        admissions: AdmissionClient,
        loaders: Executor,
        host_class: type[TransactionShardHost] = TransactionShardHost,
    ) -> None:
        super().__init__(clock, producer_ids, markers)
        self._admissions = admissions
        self.hosts += [
            host_class(f"transaction shard {number}", store, settings, clock, markers, loaders)
            for number, store in enumerate(stores)
        ]

    async def create_topic(self) -> bool:
        """Return True: the shards exist as long as the cluster."""
        return True

    async def list_transactions(
        self,
        states: frozenset[str],
        producer_ids: frozenset[int],
        duration_ms: int,
        pattern: LinearPattern | None,
    ) -> ListTransactionsReply:
        """Return the transactional ids of this broker's shards that pass the filters.

        While no live broker owns a shard, the reply is COORDINATOR_LOAD_IN_PROGRESS: otherwise a
        client that asks all brokers would believe that the ids of this shard do not exist.
        """
        reply = await super().list_transactions(states, producer_ids, duration_ms, pattern)
        if not reply.error and not self._admissions.has_all_coordinators():
            return ListTransactionsReply(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return reply

    def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        done: PartitionsDone,
    ) -> None:
        """Check or add partitions, here or at the coordinator on another broker."""
        if self._admissions.is_local(transactional_id):
            super().admit(
                transactional_id, producer_id, producer_epoch, partitions, adds=adds, done=done
            )
        else:
            self._admissions.submit(
                AdmissionRequest(
                    transactional_id, producer_id, producer_epoch, tuple(partitions), adds, done
                )
            )

    def close(self) -> None:
        """Stop handling events."""
        super().close()
        self._admissions.close()
