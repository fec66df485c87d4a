"""Options of a write under the names of Spark's Kafka connector and of Kafka's producer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from partage.client.addresses import InvalidAddressError, parse_bootstrap_servers
from partage.client.options import ClientOptions, RetryPolicy
from partage.client.range_fetch import FetchOptions
from partage.client.security.options import SecurityOptions
from partage.spark.bounds import SparkOptionError
from partage.spark.kafka_options import (
    COMMON_NO_EFFECT,
    COMMON_UNSUPPORTED,
    PREFIX,
    SERVERS,
    UNKNOWN_OPTIONS,
    KafkaOptions,
    check_setting_names,
    parse_ignores_unknown,
)
from partage.spark.option_values import parse_boolean, parse_choice, parse_positive, suggest_name
from partage.spark.security import JAVA_CLASS, SECURITY_OPTION_NAMES, parse_security

#: All options without the prefix ``kafka.``.
KNOWN_WRITE_OPTIONS: Final = (
    "deliveryGuarantee",
    "includeHeaders",
    "markRows",
    "topic",
    "transactionalIdPrefix",
    UNKNOWN_OPTIONS,
)
#: Values of the option ``deliveryGuarantee``, as in Flink's Kafka sink.
EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"
_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
#: The longest time that brokers accept by default. A shorter one would limit batches.
_TRANSACTION_TIMEOUT_MS: Final = 900_000
#: Spark's own options, which it passes to every sink.
_SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "path", "querytype"})


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed options of a write; ``producer`` holds librdkafka's properties."""

    servers: str
    topic: str | None
    mark_rows: bool
    producer: tuple[tuple[str, str], ...]
    #: The connection of the requests that commit transactions.
    kafka: KafkaOptions
    #: Maximum wait for unreachable brokers or an unknown topic: Kafka's ``max.block.ms``.
    max_block_ms: int = 60_000
    #: The prefix of transactional ids and groups; None without transactions.
    transactional_id_prefix: str | None = None
    transaction_timeout_ms: int = _TRANSACTION_TIMEOUT_MS


def _at_least_zero(name: str, text: str) -> str:
    if not text.strip().isascii() or not text.strip().isdigit():
        raise SparkOptionError(f"{name} takes a whole number, not {text!r}")
    return text.strip()


def _number(name: str, text: str) -> str:
    return str(parse_positive(name, text))


def _codec(name: str, text: str) -> str:
    return parse_choice(name, text, ("none", "gzip", "snappy", "lz4", "zstd"))


def _acks(name: str, text: str) -> str:
    """Accept only "all": fewer acknowledgements could lose records without an error."""
    if parse_choice(name, text, ("all", "-1", "0", "1")) in ("0", "1"):
        raise SparkOptionError(f"{name}={text} may lose records; this sink always uses acks=all")
    return "all"


def _idempotence(name: str, text: str) -> str:
    if not parse_boolean(name, text):
        raise SparkOptionError(
            f"{name}=false may write records twice; this sink is always idempotent"
        )
    return "true"


def _text(name: str, text: str) -> str:
    return text.strip()


#: Java's name -> (librdkafka's name, parser of the value).
_PRODUCER: Final[dict[str, tuple[str, Callable[[str, str], str]]]] = {
    "acks": ("acks", _acks),
    "batch.size": ("batch.size", _number),
    "client.id": ("client.id", _text),
    "compression.type": ("compression.type", _codec),
    "connections.max.idle.ms": ("connections.max.idle.ms", _at_least_zero),
    "delivery.timeout.ms": ("delivery.timeout.ms", _number),
    "enable.idempotence": ("enable.idempotence", _idempotence),
    "linger.ms": ("linger.ms", _at_least_zero),
    "max.in.flight.requests.per.connection": ("max.in.flight", _number),
    "max.request.size": ("message.max.bytes", _number),
    "metadata.max.age.ms": ("metadata.max.age.ms", _number),
    "reconnect.backoff.max.ms": ("reconnect.backoff.max.ms", _number),
    "reconnect.backoff.ms": ("reconnect.backoff.ms", _number),
    "request.timeout.ms": ("request.timeout.ms", _number),
    "retries": ("retries", _number),
    "retry.backoff.max.ms": ("retry.backoff.max.ms", _number),
    "retry.backoff.ms": ("retry.backoff.ms", _number),
    "socket.connection.setup.timeout.ms": ("socket.connection.setup.timeout.ms", _number),
}
#: All settings that have an effect.
_KNOWN: Final = (
    SERVERS,
    "max.block.ms",
    _TRANSACTION_TIMEOUT,
    *_PRODUCER,
    *SECURITY_OPTION_NAMES,
)
_NO_EFFECT: Final = COMMON_NO_EFFECT | {
    "buffer.memory",
    "buffer.memory.allocation.strategy",
    "client.rack",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "partitioner.ignore.keys",
    "partitioner.rack.aware",
}
_UNSUPPORTED: Final = {
    **COMMON_UNSUPPORTED,
    "key.serializer": "keys are bytes or text; make them with the DataFrame's functions",
    "partitioner.class": f"{JAVA_CLASS}; give the rows a partition column",
    "transaction.two.phase.commit.enable": "the driver commits open transactions without it",
    "transactional.id": "each task has its own id; set transactionalIdPrefix",
    "value.serializer": "values are bytes or text; make them with the DataFrame's functions",
}
#: Java's defaults where librdkafka's differ, and properties that users cannot change.
_DEFAULTS: Final = {
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",  # same partition for a key as in Java
    "log_level": "0",  # errors are raised, not logged
    "message.max.bytes": str(1024 * 1024),
    "linger.ms": "5",
    "delivery.timeout.ms": "120000",
    "queue.buffering.max.kbytes": "65536",
}


def parse_write_options(given: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Parse the options of ``df.write`` or ``df.writeStream``; names are case-insensitive.

    Raises:
        SparkOptionError: if an option is invalid. The message names the option, the problem and
            a valid value.
    """
    options = {name.lower(): value for name, value in given.items()}
    kafka = {
        name.removeprefix(PREFIX): value
        for name, value in options.items()
        if name.startswith(PREFIX)
    }
    own = {name: text for name, text in options.items() if not name.startswith(PREFIX)}
    for name in own.keys() - _SPARK_OPTIONS - {known.lower() for known in KNOWN_WRITE_OPTIONS}:
        close = suggest_name(name, [*KNOWN_WRITE_OPTIONS, f"{PREFIX}{SERVERS}"])
        raise SparkOptionError(f"there is no option {name!r} for writing{close}")
    if "includeheaders" in own:
        # accepted for compatibility: a headers column is always written
        parse_boolean("includeHeaders", own["includeheaders"])
    topic = own.get("topic")
    if topic is not None and not topic.strip():
        raise SparkOptionError("topic is empty; it takes the name of the topic to write to")
    servers = _servers(kafka)
    producer = _producer(kafka, parse_ignores_unknown(own))
    max_block_ms = parse_positive(f"{PREFIX}max.block.ms", kafka.get("max.block.ms", "60000"))
    prefix = _transactional_id_prefix(own, kafka, is_stream=is_stream)
    timeout_ms = _transaction_timeout_ms(kafka)
    if prefix is not None:
        # librdkafka rejects a delivery timeout that is longer than the transaction's.
        producer["delivery.timeout.ms"] = _delivery_timeout_ms(kafka, timeout_ms)
        if timeout_ms <= max_block_ms:
            raise SparkOptionError(
                f"{PREFIX}{_TRANSACTION_TIMEOUT}={timeout_ms} must be longer than "
                f"{PREFIX}max.block.ms ({max_block_ms}): a batch is committed only if its "
                "transactions last that long; raise the first, or shorten the second"
            )
    marks_by_default = is_stream and prefix is None
    mark_rows = parse_boolean("markRows", own["markrows"]) if "markrows" in own else None
    return WriteOptions(
        servers=servers,
        topic=topic and topic.strip(),
        mark_rows=marks_by_default if mark_rows is None else mark_rows,
        producer=tuple(sorted(producer.items())),
        kafka=_client(kafka, max_block_ms),
        max_block_ms=max_block_ms,
        transactional_id_prefix=prefix,
        transaction_timeout_ms=timeout_ms,
    )


def _transactional_id_prefix(
    own: Mapping[str, str], kafka: Mapping[str, str], *, is_stream: bool
) -> str | None:
    """Return the prefix of transactional ids; None for a write without transactions."""
    default = EXACTLY_ONCE if is_stream else AT_LEAST_ONCE
    guarantee = parse_choice(
        "deliveryGuarantee", own.get("deliveryguarantee", default), (EXACTLY_ONCE, AT_LEAST_ONCE)
    )
    if guarantee == EXACTLY_ONCE and not is_stream:
        raise SparkOptionError(
            f"deliveryGuarantee={EXACTLY_ONCE} is for streams: only the batches of a stream have "
            "numbers by which a repetition is recognized"
        )
    if guarantee == AT_LEAST_ONCE:
        given = [name for name in ("transactionalIdPrefix",) if name.lower() in own]
        given += [PREFIX + _TRANSACTION_TIMEOUT] if _TRANSACTION_TIMEOUT in kafka else []
        if given:
            raise SparkOptionError(
                f"{given[0]} has no effect without transactions; remove it, or write a stream "
                f"with deliveryGuarantee={EXACTLY_ONCE}"
            )
        return None
    prefix = own.get("transactionalidprefix", "partage-sink").strip()
    if not prefix:
        raise SparkOptionError("transactionalIdPrefix is empty; it takes text such as my-team")
    return prefix


def _transaction_timeout_ms(kafka: Mapping[str, str]) -> int:
    given = kafka.get(_TRANSACTION_TIMEOUT, str(_TRANSACTION_TIMEOUT_MS))
    return parse_positive(PREFIX + _TRANSACTION_TIMEOUT, given)


def _delivery_timeout_ms(kafka: Mapping[str, str], transaction_timeout_ms: int) -> str:
    """Return the delivery timeout of a transactional producer."""
    given = kafka.get("delivery.timeout.ms")
    if given is None:
        return str(min(int(_DEFAULTS["delivery.timeout.ms"]), transaction_timeout_ms))
    if int(given) > transaction_timeout_ms:
        raise SparkOptionError(
            f"{PREFIX}delivery.timeout.ms={given} is longer than "
            f"{PREFIX}{_TRANSACTION_TIMEOUT} ({transaction_timeout_ms}); shorten it"
        )
    return given.strip()


def _client(kafka: Mapping[str, str], max_block_ms: int) -> KafkaOptions:
    """Return the settings of the client that commits transactions."""
    numbers = {
        "connect_timeout_ms": "socket.connection.setup.timeout.ms",
        "metadata_max_age_ms": "metadata.max.age.ms",
        "request_timeout_ms": "request.timeout.ms",
    }
    client = msgspec.structs.replace(
        ClientOptions(),
        retries=RetryPolicy(timeout_ms=max_block_ms, backoff_ms=20),
        security=parse_security(kafka),
        **{
            field: parse_positive(PREFIX + name, kafka[name])
            for field, name in numbers.items()
            if name in kafka
        },
        **({"client_id": kafka["client.id"].strip()} if "client.id" in kafka else {}),
    )
    return KafkaOptions(kafka[SERVERS], client, FetchOptions())


def _servers(kafka: Mapping[str, str]) -> str:
    servers = kafka.get(SERVERS)
    if servers is None:
        raise SparkOptionError(f"{PREFIX}{SERVERS} is missing; set it to HOST:PORT of the brokers")
    try:
        parse_bootstrap_servers(servers)
    except InvalidAddressError as error:
        raise SparkOptionError(f"{PREFIX}{SERVERS}: {error}") from None
    return servers


def _producer(kafka: Mapping[str, str], ignores_unknown: bool) -> dict[str, str]:
    check_setting_names(
        kafka,
        known=_KNOWN,
        no_effect=_NO_EFFECT,
        unsupported=_UNSUPPORTED,
        user="sink",
        ignores_unknown=ignores_unknown,
    )
    found = dict(_DEFAULTS)
    for name, (native, read) in _PRODUCER.items():
        if name in kafka:
            found[native] = read(PREFIX + name, kafka[name])
    found[SERVERS] = kafka[SERVERS]
    return found | to_librdkafka(parse_security(kafka))


def to_librdkafka(security: SecurityOptions) -> dict[str, str]:
    """Return the TLS and SASL settings as librdkafka's properties."""
    found = {"security.protocol": security.security_protocol.lower()}
    if security.uses_tls:
        named = {
            "ssl.ca.location": security.ssl_cafile,
            "ssl.ca.pem": security.ssl_cadata,
            "ssl.certificate.location": security.ssl_certfile,
            "ssl.key.location": security.ssl_keyfile or security.ssl_certfile,
            "ssl.certificate.pem": security.ssl_certdata,
            "ssl.key.pem": security.ssl_certdata,
            "ssl.key.password": security.ssl_password,
        }
        found |= {name: text for name, text in named.items() if text is not None}
        if not security.ssl_check_hostname:
            found["ssl.endpoint.identification.algorithm"] = "none"
    if security.uses_sasl:
        found |= _sasl(security)
    return found


def _sasl(security: SecurityOptions) -> dict[str, str]:
    endpoint = security.sasl_oauthbearer_token_endpoint_url
    named = {
        "sasl.mechanism": security.sasl_mechanism,
        "sasl.username": security.sasl_username,
        "sasl.password": security.sasl_password,
        "sasl.oauthbearer.method": None if endpoint is None else "oidc",
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.oauthbearer.client.id": security.sasl_oauthbearer_client_credentials_client_id,
        "sasl.oauthbearer.client.secret": (
            security.sasl_oauthbearer_client_credentials_client_secret
        ),
        "sasl.oauthbearer.scope": security.sasl_oauthbearer_scope,
    }
    return {name: text for name, text in named.items() if text is not None}
