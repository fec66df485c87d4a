"""Options with the prefix ``kafka.``: settings of a Kafka consumer.

There are three kinds:

- Settings that pace or limit a read have their effect.
- Tuning settings without a counterpart here are accepted with a warning, so that a query works with
  this source and with Spark's connector.
- Settings that would change the records read are rejected with a reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from partage.client.addresses import InvalidAddressError, parse_bootstrap_servers
from partage.client.options import ClientOptions
from partage.client.range_fetch import FetchOptions
from partage.spark import group_options, security
from partage.spark.bounds import SparkOptionError
from partage.spark.group_options import GroupOptions, parse_group_options
from partage.spark.option_values import parse_boolean, parse_choice, parse_positive, suggest_name

log = logging.getLogger(__name__)

PREFIX: Final = "kafka."
SERVERS: Final = "bootstrap.servers"

_INT_MAX: Final = 2**31 - 1


class KafkaOptions(msgspec.Struct, frozen=True):
    """Settings for the connection, the fetches and the group."""

    servers: str
    client: ClientOptions
    fetch: FetchOptions
    group: GroupOptions = GroupOptions()
    #: Given options, with the prefix, that have an effect for group members only.
    group_only_names: tuple[str, ...] = ()


#: Option name -> (field to set, parser of the value).
_CLIENT: Final[dict[str, tuple[str, Callable[[str, str], object]]]] = {
    "client.id": ("client_id", lambda name, text: text.strip()),
    "request.timeout.ms": ("request_timeout_ms", parse_positive),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", parse_positive),
    "metadata.max.age.ms": ("metadata_max_age_ms", parse_positive),
}
_RETRIES: Final[dict[str, tuple[str, Callable[[str, str], object]]]] = {
    "default.api.timeout.ms": ("timeout_ms", parse_positive),
    "retry.backoff.ms": ("backoff_ms", parse_positive),
    "retry.backoff.max.ms": ("backoff_max_ms", parse_positive),
}
_FETCH: Final[dict[str, tuple[str, Callable[[str, str], object]]]] = {
    "max.partition.fetch.bytes": ("partition_bytes_max", parse_positive),
    "fetch.max.wait.ms": ("max_wait_ms", parse_positive),
    "check.crcs": ("verify_crc", parse_boolean),
    "isolation.level": (
        "read_committed",
        lambda name, text: (
            parse_choice(name, text, ("read_uncommitted", "read_committed")) == "read_committed"
        ),
    ),
}
#: Supported options that the tables above do not contain.
_SUPPORTED_ELSEWHERE: Final = (
    SERVERS,
    "fetch.max.bytes",
    *security.SECURITY_OPTION_NAMES,
    *group_options.GROUP_OPTION_NAMES,
)

_NO_EFFECT: Final = frozenset(
    {
        "allow.auto.create.topics",  # reading never creates a topic
        "auto.commit.interval.ms",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "fetch.min.bytes",
        "max.poll.records",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        # PEM files have no store password; the key's password is ssl.key.password
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
#: A batch read has no group. It ignores these two options without a warning.
_IGNORED_SILENTLY: Final = ("group.id", "group.instance.id")

_UNSUPPORTED: Final = {
    "auto.offset.reset": "use startingOffsets=earliest or latest instead",
    "enable.auto.commit": (
        "a batch read commits nothing; a streaming query commits each finished batch"
    ),
    "group.protocol": "only the classic protocol is available; remove this option",
    "interceptor.classes": "Java classes cannot be run here",
    "sasl.client.callback.handler.class": "Java classes cannot be run here",
    "sasl.login.callback.handler.class": "Java classes cannot be run here",
    "ssl.keystore.key": "the key must be in a file; set kafka.ssl.keystore.location",
    "key.deserializer": "keys are bytes; decode them with the DataFrame's functions",
    "value.deserializer": "values are bytes; decode them with the DataFrame's functions",
}


def parse_kafka_options(given: Mapping[str, str]) -> KafkaOptions:
    """Parse the Kafka settings of a read.

    Args:
        given: settings by lower-case name, without the prefix ``kafka.``.

    Raises:
        SparkOptionError: if a setting is missing, unknown, not supported, or has an invalid value.
    """
    _check_names(given)
    servers = given.get(SERVERS)
    if servers is None:
        raise SparkOptionError(f"{PREFIX}{SERVERS} is missing; set it to HOST:PORT of the brokers")
    try:
        parse_bootstrap_servers(servers)
    except InvalidAddressError as error:
        raise SparkOptionError(f"{PREFIX}{SERVERS}: {error}") from None
    client = msgspec.structs.replace(ClientOptions(), **_parse_table(_CLIENT, given))
    retries = msgspec.structs.replace(client.retries, **_parse_table(_RETRIES, given))
    fetch = msgspec.structs.replace(FetchOptions(), **_parse_table(_FETCH, given))
    if "fetch.max.bytes" in given:
        limit = min(_bytes("fetch.max.bytes", given), fetch.partition_bytes_max)
        fetch = msgspec.structs.replace(fetch, partition_bytes_max=limit)
    return KafkaOptions(
        servers,
        msgspec.structs.replace(
            client,
            retries=retries,
            security=security.parse_security(given),
            # A response is a little larger than its records (see CVE-2026-10142).
            response_bytes_max=max(client.response_bytes_max, 2 * fetch.partition_bytes_max),
        ),
        fetch,
        parse_group_options(given),
        tuple(
            PREFIX + n
            for n in group_options.GROUP_OPTION_NAMES
            if n in given and n not in _IGNORED_SILENTLY
        ),
    )


def known_kafka_options() -> list[str]:
    """Return the names of all options that have an effect, with the prefix."""
    return [PREFIX + name for name in (*_SUPPORTED_ELSEWHERE, *_CLIENT, *_RETRIES, *_FETCH)]


def _parse_table(
    table: Mapping[str, tuple[str, Callable[[str, str], object]]], given: Mapping[str, str]
) -> dict[str, object]:
    return {
        field: parse(PREFIX + name, given[name])
        for name, (field, parse) in table.items()
        if name in given
    }


def _bytes(name: str, given: Mapping[str, str]) -> int:
    return min(parse_positive(PREFIX + name, given[name]), _INT_MAX)


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.removeprefix(PREFIX) for name in known_kafka_options()}
    for name in given:
        why = _UNSUPPORTED.get(name)
        if why is not None:
            raise SparkOptionError(f"{PREFIX}{name} is not supported: {why}")
        if name in _NO_EFFECT:
            log.warning("%s%s has no effect on a partage source", PREFIX, name)
        elif name not in known:
            hint = suggest_name(PREFIX + name, [PREFIX + one for one in (*known, *_NO_EFFECT)])
            raise SparkOptionError(f"{PREFIX}{name} is not a setting of this source{hint}")
