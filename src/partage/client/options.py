"""Options of a client: retries, timeouts and limits, with Kafka's names and defaults."""

from __future__ import annotations

import msgspec

from partage.client.metadata_recovery import MetadataRecoveryStrategy
from partage.client.security.options import SecurityOptions


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and delays of retries.

    The delay doubles from ``backoff_ms`` to ``backoff_max_ms``, with 20 % jitter so that clients do
    not retry in step (KIP-580). With ``attempts_max`` None only ``timeout_ms`` limits the retries.
    """

    timeout_ms: int = 60_000  # default.api.timeout.ms
    attempts_max: int | None = None
    backoff_ms: int = 100  # retry.backoff.ms
    backoff_max_ms: int = 1_000  # retry.backoff.max.ms


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of all connections of a client.

    ``response_bytes_max`` is the size of the largest response that is accepted; without a limit a
    broker could exhaust the memory (https://nvd.nist.gov/vuln/detail/CVE-2026-10142). With
    ``may_retry_initial_connect`` the client also retries before any broker has answered. Otherwise
    it reports wrong addresses at once.
    """

    client_id: str = "partage"
    connect_timeout_ms: int = 10_000  # socket.connection.setup.timeout.ms
    request_timeout_ms: int = 30_000  # request.timeout.ms
    response_bytes_max: int = 100 * 1024 * 1024
    metadata_max_age_ms: int = 300_000  # metadata.max.age.ms
    metadata_recovery_strategy: MetadataRecoveryStrategy = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    retries: RetryPolicy = RetryPolicy()
    may_retry_initial_connect: bool = False
    security: SecurityOptions = SecurityOptions()
