"""The options of clients and memberships, typed and documented one by one.

Each field of a `Config` class is one keyword argument. Its `Option` has the documentation; its
default is that of the structure that `partage.client.consumer.options` fills. The tables in
``docs/`` are generated from both (`partage.client.consumer.page`).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from os import PathLike
from typing import Annotated, Any, NamedTuple, TypedDict

from partage.client.metadata_recovery import MetadataRecoveryStrategy


class Option(NamedTuple):
    """The documentation of an option.

    Attributes:
        doc: The meaning, as a sentence without its full stop.
        kafka: The name of Kafka's setting; None if Kafka has none.
        kip: The number of the KIP that introduced the setting or defines its present meaning.
        unit: "ms", "bytes" or "records"; empty if there is none.
    """

    doc: str
    kafka: str | None = None
    kip: int | None = None
    unit: str = ""


class SecurityConfig(TypedDict, total=False):
    """The options of TLS and SASL; names as in Python's Kafka clients, otherwise Kafka's."""

    security_protocol: Annotated[
        str,
        Option(
            "`PLAINTEXT`, `SSL` (TLS), `SASL_PLAINTEXT` (SASL without TLS) or `SASL_SSL` (both)",
            kafka="security.protocol",
        ),
    ]
    ssl_context: Annotated[
        ssl.SSLContext | None,
        Option("An `ssl.SSLContext` instead of all other `ssl_` options"),
    ]
    ssl_check_hostname: Annotated[
        bool,
        Option(
            "True if the broker's certificate must name the host",
            kafka="ssl.endpoint.identification.algorithm",
        ),
    ]
    ssl_cafile: Annotated[
        str | PathLike[str] | None,
        Option(
            "PEM file with the trusted authorities; the system's if None",
            kafka="ssl.truststore.location",
            kip=651,
        ),
    ]
    ssl_cadata: Annotated[
        str | None,
        Option("The trusted authorities as PEM text", kafka="ssl.truststore.certificates", kip=651),
    ]
    ssl_certfile: Annotated[
        str | PathLike[str] | None,
        Option(
            "PEM file with the client's certificate and its chain",
            kafka="ssl.keystore.location",
            kip=651,
        ),
    ]
    ssl_keyfile: Annotated[
        str | PathLike[str] | None,
        Option(
            "PEM file with the client's private key; `ssl_certfile` if None",
            kafka="ssl.keystore.key",
            kip=651,
        ),
    ]
    ssl_certdata: Annotated[
        str | None,
        Option(
            "The client's certificate, its chain and its private key as PEM text",
            kafka="ssl.keystore.certificate.chain",
            kip=651,
        ),
    ]
    ssl_password: Annotated[
        str | None,
        Option("Password of the private key, if it is encrypted", kafka="ssl.key.password"),
    ]
    sasl_mechanism: Annotated[
        str | None,
        Option(
            "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`",
            kafka="sasl.mechanism",
            kip=43,
        ),
    ]
    sasl_username: Annotated[
        str | None, Option("User name for PLAIN and SCRAM", kafka="sasl.jaas.config")
    ]
    sasl_password: Annotated[
        str | None, Option("Password for PLAIN and SCRAM", kafka="sasl.jaas.config")
    ]
    sasl_plain_username: Annotated[
        str | None, Option("kafka-python's name of `sasl_username`", kafka="sasl.jaas.config")
    ]
    sasl_plain_password: Annotated[
        str | None, Option("kafka-python's name of `sasl_password`", kafka="sasl.jaas.config")
    ]
    sasl_oauth_token_provider: Annotated[
        Callable[[], Any] | Any,
        Option(
            "A function that returns a token as `str` or `partage.Token`, or an object with such a "
            "method `token`; it may be asynchronous",
            kafka="sasl.login.callback.handler.class",
            kip=255,
        ),
    ]
    sasl_oauthbearer_token_endpoint_url: Annotated[
        str | None,
        Option(
            "Endpoint that returns tokens for the client's credentials",
            kafka="sasl.oauthbearer.token.endpoint.url",
            kip=768,
        ),
    ]
    sasl_oauthbearer_client_credentials_client_id: Annotated[
        str | None,
        Option(
            "Client id for the endpoint",
            kafka="sasl.oauthbearer.client.credentials.client.id",
            kip=1139,
        ),
    ]
    sasl_oauthbearer_client_credentials_client_secret: Annotated[
        str | None,
        Option(
            "Client secret for the endpoint",
            kafka="sasl.oauthbearer.client.credentials.client.secret",
            kip=1139,
        ),
    ]
    sasl_oauthbearer_scope: Annotated[
        str | None,
        Option("Scope of the requested tokens", kafka="sasl.oauthbearer.scope", kip=1139),
    ]
    sasl_oauthbearer_header_urlencode: Annotated[
        bool,
        Option(
            "True to encode the credentials as RFC 6749 requires",
            kafka="sasl.oauthbearer.header.urlencode",
            kip=1025,
        ),
    ]
    sasl_oauthbearer_allowed_urls: Annotated[
        tuple[str, ...],
        Option(
            "If not empty, the only allowed endpoints. An endpoint without TLS must be listed here",
            kafka="org.apache.kafka.sasl.oauthbearer.allowed.urls",
        ),
    ]
    sasl_oauthbearer_ssl_cafile: Annotated[
        str | PathLike[str] | None,
        Option("PEM file with the trusted authorities for the endpoint; the system's if None"),
    ]


class ClientConfig(SecurityConfig, total=False):
    """The options of all connections of a client."""

    client_id: Annotated[
        str, Option("Name of this client in the brokers' logs and quotas", kafka="client.id")
    ]
    request_timeout_ms: Annotated[
        int,
        Option("Longest wait for a response", kafka="request.timeout.ms", unit="ms"),
    ]
    default_api_timeout_ms: Annotated[
        int,
        Option(
            "Longest time for which a failed operation is retried, and in which a commit or a "
            "lookup ends",
            kafka="default.api.timeout.ms",
            kip=266,
            unit="ms",
        ),
    ]
    retry_backoff_ms: Annotated[
        int,
        Option(
            "Delay before the first retry; it doubles with each retry",
            kafka="retry.backoff.ms",
            kip=580,
            unit="ms",
        ),
    ]
    retry_backoff_max_ms: Annotated[
        int,
        Option("Longest delay before a retry", kafka="retry.backoff.max.ms", kip=580, unit="ms"),
    ]
    metadata_max_age_ms: Annotated[
        int,
        Option(
            "Age at which the metadata of topics and leaders is refreshed",
            kafka="metadata.max.age.ms",
            unit="ms",
        ),
    ]
    metadata_recovery_strategy: Annotated[
        MetadataRecoveryStrategy,
        Option(
            "`rebootstrap` also connects to `bootstrap_servers` if no known broker can be reached; "
            "`none` connects only to the brokers of the last metadata",
            kafka="metadata.recovery.strategy",
            kip=899,
        ),
    ]
    metadata_recovery_rebootstrap_trigger_ms: Annotated[
        int,
        Option(
            "Time without metadata after which the client closes all connections and rebootstraps",
            kafka="metadata.recovery.rebootstrap.trigger.ms",
            kip=1102,
            unit="ms",
        ),
    ]
    socket_connection_setup_timeout_ms: Annotated[
        int,
        Option(
            "Longest time to open a connection",
            kafka="socket.connection.setup.timeout.ms",
            kip=601,
            unit="ms",
        ),
    ]
    response_bytes_max: Annotated[
        int,
        Option(
            "Largest response that the client accepts. Without a limit, a broker could exhaust the "
            "memory ([CVE-2026-10142](https://nvd.nist.gov/vuln/detail/CVE-2026-10142))",
            unit="bytes",
        ),
    ]


class DynamicMemberConfig(ClientConfig, total=False):
    """The options of a group member without ``group_instance_id``."""

    session_timeout_ms: Annotated[
        int,
        Option(
            "Time without a heartbeat after which the coordinator removes the member",
            kafka="session.timeout.ms",
            kip=735,
            unit="ms",
        ),
    ]
    heartbeat_interval_ms: Annotated[
        int,
        Option(
            "Interval of heartbeats, usually a third of the session timeout. It is shorter right "
            "after a rebalance",
            kafka="heartbeat.interval.ms",
            unit="ms",
        ),
    ]


class MembershipConfig(DynamicMemberConfig, total=False):
    """The options of `partage.Membership`."""

    group_instance_id: Annotated[
        str | None,
        Option(
            "Makes a static member: it keeps its place if it returns within the session timeout",
            kafka="group.instance.id",
            kip=345,
        ),
    ]
