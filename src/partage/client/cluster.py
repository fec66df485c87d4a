"""A client's view of a cluster: brokers, topics, partition leaders and connections."""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from partage.client.addresses import parse_bootstrap_servers
from partage.client.connection import Connection
from partage.client.errors import (
    BrokerResponseError,
    BrokersUnreachableError,
    ClientError,
    ConnectError,
    NoLeaderError,
    UnknownPartitionError,
    UnknownTopicError,
)
from partage.client.metadata import BrokerMetadata, LeaderAndEpoch, TopicMetadata
from partage.client.metadata_recovery import MetadataRecovery
from partage.client.options import ClientOptions, RetryPolicy
from partage.client.retries import Retries
from partage.client.security.credentials import Credentials
from partage.client.shared_attempt import SharedAttempt
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.model.topic_partition import TopicPartition
from partage.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Cluster:
    """A Kafka cluster, found through ``bootstrap_servers`` (``host:port,host:port``).

    Connections are opened on demand, one for each broker, and kept open. Topic metadata is cached
    for ``metadata_max_age_ms``, or until a broker's response shows that it is outdated. A cluster
    belongs to the event loop that first uses it. It is an async context manager. If it can reach no
    known broker, `MetadataRecovery` decides about the return to ``bootstrap_servers``.

    Args:
        bootstrap_servers: The addresses to connect to first.
        options: Timeouts, limits and security; the defaults if None.

    Raises:
        InvalidAddressError: An address in ``bootstrap_servers`` is invalid.
        InvalidSecurityOptionError: A TLS file cannot be used, or a package is not installed.
    """

    def __init__(
        self, bootstrap_servers: str | Sequence[Address], options: ClientOptions | None = None
    ) -> None:
        servers = bootstrap_servers
        self._bootstrap = (
            parse_bootstrap_servers(servers) if isinstance(servers, str) else list(servers)
        )
        self.options = options or ClientOptions()
        self._credentials = Credentials(self.options.security)
        self._connections: dict[Address, Connection] = {}
        self._connecting: dict[Address, SharedAttempt[Connection]] = {}
        self._brokers: dict[int, Address] = {}
        #: The brokers of the last metadata response, by id.
        self.brokers: dict[int, BrokerMetadata] = {}
        #: The cluster id, or None before the first response and from the oldest brokers (KIP-78).
        self.cluster_id: str | None = None
        self._topics: dict[str, tuple[TopicMetadata, float]] = {}
        self._recovery = MetadataRecovery(
            self.options.metadata_recovery_strategy,
            self.options.metadata_recovery_rebootstrap_trigger_ms,
        )
        self._has_answered = self.options.may_retry_initial_connect
        self._logged_unreachable: set[Address] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Pending requests fail with `ConnectionLostError`."""
        self._is_closed = True
        self._cancel_attempts()
        self._close_connections()

    # Topics

    async def topics(
        self, names: Iterable[str], *, fresh: bool = False
    ) -> dict[str, TopicMetadata]:
        """Return the metadata of the named topics. Never creates a topic.

        Args:
            names: The topic names.
            fresh: True to bypass the cache.

        Raises:
            UnknownTopicError: A topic does not exist.
            BrokerResponseError: A topic may not be read, or its name is invalid.
            BrokersUnreachableError: No broker answers.
        """
        wanted = list(dict.fromkeys(names))
        if fresh:
            for name in wanted:
                self.invalidate_topic(name)
        return await self.with_retries(lambda: self._cached_or_refreshed(wanted))

    async def existing_topics(
        self, names: Iterable[str]
    ) -> tuple[dict[str, TopicMetadata], dict[str, BrokerResponseError]]:
        """Return the current metadata of the named topics that exist, and the errors of others.

        A topic that does not exist is in neither result. The error of a topic that may not be read,
        or has an invalid name, does not affect the other topics.

        Raises:
            ClientError: No broker answers, or a topic has a transient error for too long.
        """
        wanted = list(dict.fromkeys(names))
        return await self.with_retries(lambda: self._existing(wanted)) if wanted else ({}, {})

    async def describe_topics(
        self, names: Iterable[str]
    ) -> tuple[dict[str, TopicMetadata], dict[str, ClientError]]:
        """Return the metadata of the named topics, and the errors of others, in one attempt.

        An error of a topic does not affect the other topics.

        Raises:
            ClientError: No broker answers.
        """
        found: dict[str, TopicMetadata] = {}
        errors: dict[str, ClientError] = {}
        wanted = list(names)
        answer = await self._metadata(wanted)
        until = asyncio.get_running_loop().time() + self.options.metadata_max_age_ms / 1000
        for described in answer.topics:
            topic = _topic(described, self._brokers)
            if topic is None:
                continue
            self.invalidate_topic(topic.name)
            if described.error_code in _UNKNOWN:
                errors[topic.name] = UnknownTopicError(topic.name)
            elif described.error_code:
                what = f"topic {topic.name!r}"
                errors[topic.name] = BrokerResponseError(described.error_code, what)
            else:
                found[topic.name] = topic
                self._topics[topic.name] = topic, until
        for name in wanted:
            if name not in found and name not in errors:
                errors[name] = UnknownTopicError(name)
        return found, errors

    async def all_topics(self) -> dict[str, TopicMetadata]:
        """Return all topics, including internal ones. Raises like `topics`."""
        answer = await self.with_retries(lambda: self._metadata(None))
        described = (_topic(each, self._brokers) for each in answer.topics)
        return {topic.name: topic for topic in described if topic is not None}

    def invalidate_topic(self, topic: str) -> None:
        """Drop a topic from the cache, after a response showed that its metadata is outdated."""
        self._topics.pop(topic, None)

    # Brokers

    async def leadership(self, partition: TopicPartition) -> LeaderAndEpoch:
        """Return the leader of a partition, in one attempt; its id is -1 if there is none now.

        Raises:
            UnknownTopicError, UnknownPartitionError: The partition does not exist.
            ClientError: Like `topics`.
        """
        name, was_known = partition.topic, self._is_fresh(partition.topic)
        topic = (await self._cached_or_refreshed([name]))[name]
        if partition.partition not in topic.partitions and was_known:
            # The topic may have more partitions since the metadata was cached
            self.invalidate_topic(name)
            topic = (await self._cached_or_refreshed([name]))[name]
        if partition.partition not in topic.partitions:
            raise UnknownPartitionError(partition, len(topic.partitions))
        return topic.partitions[partition.partition]

    async def leader(self, partition: TopicPartition) -> tuple[Connection, LeaderAndEpoch]:
        """Return a connection to the leader of a partition, in one attempt.

        Retry the whole request, not only this call: see `with_retries`.

        Raises:
            NoLeaderError: The partition has no leader now.
            UnknownTopicError, UnknownPartitionError: The partition does not exist.
            ConnectError: The leader cannot be reached at its advertised address.
            ClientError: Like `topics`.
        """
        leadership = await self.leadership(partition)
        return await self.replica(partition, leadership.leader_id), leadership

    async def replica(self, partition: TopicPartition, broker_id: int) -> Connection:
        """Return a connection to a replica of a partition, in one attempt.

        After a failure, the next lookup of the topic asks for new metadata.

        Args:
            partition: The partition.
            broker_id: The id of its leader or of a follower.

        Raises:
            NoLeaderError: The last metadata does not list this broker.
            ConnectError: The broker cannot be reached at its advertised address.
            ClientError: The broker refuses the login, or does not use Kafka's protocol.
        """
        address = self._brokers.get(broker_id)
        if address is None:
            self.invalidate_topic(partition.topic)
            raise NoLeaderError(partition)
        try:
            return await self.connect_to(address)
        except ConnectError as error:
            self.invalidate_topic(partition.topic)
            why = f"{error.reason}; broker {broker_id} advertises this address"
            failure = ConnectError(address, why)
            # Log once for each address: it may be retried for a minute
            if address not in self._logged_unreachable:
                self._logged_unreachable.add(address)
                log.warning("could not connect to broker %s", failure)
            raise failure from error

    async def any_broker(self) -> Connection:
        """Return a connection to any broker that answers.

        Raises:
            BrokersUnreachableError: No broker answers.
        """
        if self._recovery.is_due(_now_ms()):
            self._rebootstrap()
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        addresses = list(self._brokers.values())
        if not addresses or self._recovery.may_rebootstrap:
            addresses += self._bootstrap
        failures = []
        for address in dict.fromkeys(addresses):
            try:
                return await self.connect_to(address)
            except ConnectError as error:
                failures.append(error)
        is_retriable = self._has_answered and not self._is_closed
        raise BrokersUnreachableError(failures, is_retriable=is_retriable)

    async def connect_to(self, address: Address) -> Connection:
        """Return the connection to the broker at a bootstrap address or an advertised one.

        Concurrent callers share one attempt and its result.

        Raises:
            ConnectError: The broker cannot be reached there.
        """
        known = self._connections.get(address)
        if known is not None and known.is_open:
            return known
        if self._is_closed:
            raise _closed(address)
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = SharedAttempt(partial(self._connect, address))
            self._connecting[address] = attempt
        try:
            return await attempt.result()
        except ConnectionAbortedError:
            if self._is_closed:
                raise _closed(address) from None
            raise ConnectError(address, "the attempt to connect was cancelled") from None
        finally:
            if not attempt.is_under_way and self._connecting.get(address) is attempt:
                del self._connecting[address]

    async def _connect(self, address: Address) -> Connection:
        known = self._connections.get(address)
        made = await Connection.open(address, self.options, self._credentials)
        try:
            if known is not None and known.was_closed_unanswered:
                await made.check_sasl_not_required()
        except BaseException:
            made.close()
            raise
        self._connections[address] = made
        self._logged_unreachable.discard(address)
        self._has_answered = True
        return made

    async def broker_addresses(self) -> dict[int, Address]:
        """Return the addresses of all brokers by id, in one attempt. Raises like `topics`."""
        await self._metadata([])
        return dict(self._brokers)

    async def with_retries(
        self, attempt: Callable[[], Awaitable[T]], policy: RetryPolicy | None = None
    ) -> T:
        """Repeat ``attempt`` until it succeeds, within the policy (``options.retries`` if None).

        Raises:
            ClientError: The last error, if it cannot be retried or the policy is exhausted.
        """
        retries = Retries(policy or self.options.retries)
        while True:
            try:
                return await attempt()
            except ClientError as error:
                await retries.wait_or_raise(error)

    # Internals

    async def _cached_or_refreshed(self, names: list[str]) -> dict[str, TopicMetadata]:
        missing = [name for name in names if not self._is_fresh(name)]
        if missing:
            await self._refresh(missing)
        return {name: self._topics[name][0] for name in names}

    def _is_fresh(self, topic: str) -> bool:
        known = self._topics.get(topic)
        return known is not None and asyncio.get_running_loop().time() < known[1]

    async def _refresh(self, names: list[str]) -> None:
        _, errors = await self.describe_topics(names)
        for name, error in errors.items():
            if isinstance(error, UnknownTopicError):
                raise UnknownTopicError(name, (await self.similar_topics([name]))[name])
            raise error

    async def _existing(
        self, names: list[str]
    ) -> tuple[dict[str, TopicMetadata], dict[str, BrokerResponseError]]:
        found, errors = await self.describe_topics(names)
        refused = {
            n: error for n, error in errors.items() if isinstance(error, BrokerResponseError)
        }
        for error in refused.values():
            if error.is_retriable:
                raise error
        return found, refused

    async def similar_topics(self, names: Iterable[str]) -> dict[str, str | None]:
        """Return the existing topic with the most similar name for each name, in one attempt.

        Raises:
            ClientError: No broker answers.
        """
        answer = await self._metadata(None)
        known = [t.name for t in answer.topics if t.name and not t.is_internal]
        return {
            name: next(iter(difflib.get_close_matches(name, known, n=1)), None) for name in names
        }

    def _cancel_attempts(self) -> None:
        for attempt in self._connecting.values():
            attempt.cancel()
        self._connecting.clear()

    def _close_connections(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _rebootstrap(self) -> None:
        """Close all connections and forget all brokers; the bootstrap addresses are used next."""
        servers = ",".join(map(str, self._bootstrap))
        log.info("rebootstrapped: bootstrap_servers=%s brokers=%d", servers, len(self._brokers))
        self._cancel_attempts()
        self._close_connections()
        self._brokers = {}
        self.brokers = {}
        self._topics.clear()
        self._recovery.on_rebootstrap(_now_ms())

    async def _metadata(self, names: list[str] | None) -> MetadataResponse:
        self._recovery.on_attempt(_now_ms())
        try:
            answer = await self._request_metadata(names)
        except ClientError:
            self._recovery.on_failure()
            raise
        except BaseException:  # Cancelled, usually.
            self._recovery.on_abandoned()
            raise
        self._has_answered = True
        if answer.brokers:
            self._recovery.on_metadata()
        else:
            self._recovery.on_failure()
        self.cluster_id = answer.cluster_id or self.cluster_id
        self._brokers = {b.node_id: Address(b.host, b.port) for b in answer.brokers}
        self.brokers = {b.node_id: BrokerMetadata(b.host, b.rack) for b in answer.brokers}
        return answer

    async def _request_metadata(self, names: list[str] | None) -> MetadataResponse:
        connection = await self.any_broker()
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        remaining_ms = self._recovery.remaining_ms(_now_ms())
        timeout_ms = self.options.request_timeout_ms
        answer = await connection.send(
            METADATA,
            MetadataRequest(topics=topics, allow_auto_topic_creation=False),
            timeout_ms=timeout_ms
            if remaining_ms is None
            else min(timeout_ms, max(1, remaining_ms)),
        )
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._recovery.on_required()
        if answer.error_code:
            raise BrokerResponseError(answer.error_code, "Metadata")
        return answer


def _closed(address: Address) -> ConnectError:
    error = ConnectError(address, "this client is closed")
    error.is_retriable = False
    return error


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def _topic(described: MetadataTopic, brokers: Container[int]) -> TopicMetadata | None:
    """Return the metadata of a topic; ``brokers`` are the ids of the brokers in the response."""
    if described.name is None:
        return None
    return TopicMetadata(
        name=described.name,
        topic_id=described.topic_id,
        is_internal=described.is_internal,
        partitions={
            p.partition_index: LeaderAndEpoch(p.leader_id, p.leader_epoch)
            for p in described.partitions
        },
        replicas={p.partition_index: tuple(p.replica_nodes) for p in described.partitions},
        online_replicas={
            p.partition_index: tuple(
                each
                for each in p.replica_nodes
                if each in brokers and each not in p.offline_replicas
            )
            for p in described.partitions
        },
    )
