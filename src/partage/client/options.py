"""What paces and bounds a client; names and defaults as Kafka's where it has them."""

from __future__ import annotations

import msgspec

from partage.client.security.options import SecurityOptions


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long, how often and in which rhythm something is tried again.

    The wait doubles from ``backoff_ms`` to ``backoff_max_ms``, with a fifth of chance in it so
    that clients do not march in step (KIP-580). ``attempts_max`` None leaves it to the time.
    """

    timeout_ms: int = 60_000  # default.api.timeout.ms
    attempts_max: int | None = None
    backoff_ms: int = 100  # retry.backoff.ms
    backoff_max_ms: int = 1_000  # retry.backoff.max.ms


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all of a client's connections.

    ``response_bytes_max`` is the largest answer that is taken from a broker (CVE-2026-10142 is
    what happens without it). ``is_patient`` also tries again when no broker at all has answered
    yet; otherwise that is taken for a wrong address and said at once.
    """

    client_id: str = "partage"
    connect_timeout_ms: int = 10_000  # socket.connection.setup.timeout.ms
    request_timeout_ms: int = 30_000  # request.timeout.ms
    response_bytes_max: int = 100 * 1024 * 1024
    metadata_max_age_ms: int = 300_000  # metadata.max.age.ms
    retries: RetryPolicy = RetryPolicy()
    may_retry_initial_connect: bool = False
    security: SecurityOptions = SecurityOptions()
