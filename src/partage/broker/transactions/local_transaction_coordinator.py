"""The transaction coordinator of a single broker, whose shards are partitions of its topic."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor

from partage.broker.clock import Clock
from partage.broker.coordination.state_store import LocalStore
from partage.broker.topics.log_manager import LogManager
from partage.broker.topics.producer_ids import ProducerIdManager
from partage.broker.transactions.marker_writer import MarkerWriter
from partage.broker.transactions.transaction_coordinator import TransactionCoordinator
from partage.broker.transactions.transaction_shard_host import TransactionShardHost
from partage.log.disk import Disk
from partage.log.results import Refusal
from partage.model.settings import TransactionSettings
from partage.store.transaction_log import TOPIC, TOPIC_CONFIGS, encode_transactions

log = logging.getLogger(__name__)


class LocalTransactionCoordinator(TransactionCoordinator):
    """The coordinator of all transactional ids.

    The topic is created at the first use, so brokers without transactions have no such partitions.

    Args:
        log_manager: the broker's partitions.
        disk: the data directory.
        settings: the transaction settings.
        clock: the broker's clock.
        producer_ids: allocates producer ids.
        markers: writes markers.
        loaders: threads for loading; by default the loop's pool.
        host_class: the class of the shards' hosts.
    """

    def __init__(
        self,
        log_manager: LogManager,
        disk: Disk,
        settings: TransactionSettings,
        clock: Clock,
        producer_ids: ProducerIdManager,
        markers: MarkerWriter,
        loaders: Executor | None = None,
        host_class: type[TransactionShardHost] = TransactionShardHost,
    ) -> None:
        super().__init__(clock, producer_ids, markers)
        self._log_manager = log_manager
        self._disk = disk
        self._settings = settings
        self._loaders = loaders
        self._host_class = host_class
        self._creation = asyncio.Lock()

    def open(self) -> None:
        """Load the shards if the topic exists; decided transactions are completed."""
        topic = self._log_manager.topic(TOPIC)
        if topic is None or self.hosts:
            return
        for index in range(topic.partition_count):
            store = LocalStore(self._log_manager, self._disk, index, TOPIC, encode_transactions)
            host = self._host_class(
                f"{TOPIC}-{index}",
                store,
                self._settings,
                self._clock,
                self._markers,
                self._loaders,
            )
            self.hosts.append(host)
            if store.is_empty:
                host.start_empty()
            else:
                host.load()

    async def create_topic(self) -> bool:
        """Create the topic if it does not exist; return True if it exists then."""
        async with self._creation:
            if not self.hosts:
                created = await self._log_manager.create(
                    TOPIC, self._settings.partitions, TOPIC_CONFIGS
                )
                if isinstance(created, Refusal):
                    log.error("topic %s cannot be created: %s", TOPIC, created.message)
                    return False
                self.open()
        return True
