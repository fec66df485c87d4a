"""Options with the prefix ``kafka.``: settings of a Kafka consumer.

There are three kinds:

- Settings that pace or limit a read have their effect.
- Tuning settings without a counterpart here are accepted with a warning, so that a query works with
  this source and with Spark's connector.
- Settings that would change the records read are rejected with a reason.

Unknown settings are rejected, or with ``partage.unknown.options=warn`` logged and ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, get_args

import msgspec

from partage.client.addresses import InvalidAddressError, parse_bootstrap_servers
from partage.client.metadata_recovery import MetadataRecoveryStrategy
from partage.client.options import ClientOptions
from partage.client.range_fetch import FetchOptions
from partage.spark import group_options, security
from partage.spark.bounds import SparkOptionError
from partage.spark.group_options import GroupOptions, parse_group_options
from partage.spark.option_values import (
    parse_boolean,
    parse_choice,
    parse_name,
    parse_positive,
    suggest_name,
)

log = logging.getLogger(__name__)

PREFIX: Final = "kafka."
SERVERS: Final = "bootstrap.servers"
#: Option that decides about unknown settings with the prefix: ``error`` or ``warn``.
UNKNOWN_OPTIONS: Final = "partage.unknown.options"

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
    "metadata.recovery.rebootstrap.trigger.ms": (
        "metadata_recovery_rebootstrap_trigger_ms",
        parse_positive,
    ),
    "metadata.recovery.strategy": (
        "metadata_recovery_strategy",
        lambda name, text: parse_choice(name, text, get_args(MetadataRecoveryStrategy)),
    ),
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
    "client.rack": ("rack", parse_name),
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

#: Settings without an effect, of consumers and producers.
COMMON_NO_EFFECT: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "bootstrap.resolve.timeout.ms",
        "client.dns.lookup",
        "enable.metrics.push",
        "metadata.cluster.check.enable",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        *security.NO_EFFECT,
    }
)
_NO_EFFECT: Final = COMMON_NO_EFFECT | {
    "allow.auto.create.topics",  # reading never creates a topic
    "auto.commit.interval.ms",
    "connections.max.idle.ms",
    "exclude.internal.topics",
    "fetch.min.bytes",
    "max.poll.records",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
}
#: A batch read has no group. It ignores these options without a warning.
_IGNORED_SILENTLY: Final = ("group.id", "group.instance.id", "group.protocol")

#: Settings that are rejected with a reason, of consumers and producers.
COMMON_UNSUPPORTED: Final = {
    "config.providers": "Spark passes the values as they are; resolve them in your program",
    "interceptor.classes": security.JAVA_CLASS,
    **security.UNSUPPORTED,
}
_UNSUPPORTED: Final = {
    **COMMON_UNSUPPORTED,
    "auto.offset.reset": "use startingOffsets=earliest or latest instead",
    "enable.auto.commit": (
        "a batch read commits nothing; a streaming query commits each finished batch"
    ),
    "key.deserializer": "keys are bytes; decode them with the DataFrame's functions",
    "share.acknowledgement.mode": "share groups are not available",
    "share.acquire.mode": "share groups are not available",
    "value.deserializer": "values are bytes; decode them with the DataFrame's functions",
}


def parse_kafka_options(given: Mapping[str, str], *, ignores_unknown: bool = False) -> KafkaOptions:
    """Parse the Kafka settings of a read.

    Args:
        given: settings by lower-case name, without the prefix ``kafka.``.
        ignores_unknown: True to log unknown settings instead of rejecting them.

    Raises:
        SparkOptionError: if a setting is missing, unknown, not supported, or has an invalid value.
    """
    check_setting_names(
        given,
        known=[name.removeprefix(PREFIX) for name in known_kafka_options()],
        no_effect=_NO_EFFECT,
        unsupported=_UNSUPPORTED,
        user="source",
        ignores_unknown=ignores_unknown,
    )
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
            # A response is a little larger than its records. For the reason of the limit, see
            # https://nvd.nist.gov/vuln/detail/CVE-2026-10142.
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


def settings_by_state() -> dict[str, list[str]]:
    """Return all known settings, sorted, by their state: used, without effect, or rejected."""
    found = {
        "used": sorted(name.removeprefix(PREFIX) for name in known_kafka_options()),
        "no effect; the source logs a warning": sorted(_NO_EFFECT),
    }
    for name, reason in sorted(_UNSUPPORTED.items()):
        found.setdefault(f"rejected: {reason}", []).append(name)
    return found


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


def parse_ignores_unknown(given: Mapping[str, str]) -> bool:
    """Return True if the options, by lower-case name, say that unknown settings are ignored.

    Raises:
        SparkOptionError: if the value is neither ``error`` nor ``warn``.
    """
    text = given.get(UNKNOWN_OPTIONS, "error")
    return parse_choice(UNKNOWN_OPTIONS, text, ("error", "warn")) == "warn"


def check_setting_names(
    names: Iterable[str],
    *,
    known: Iterable[str],
    no_effect: Collection[str],
    unsupported: Mapping[str, str],
    user: str,
    ignores_unknown: bool,
) -> None:
    """Reject unsupported and unknown settings; log a warning for those without an effect.

    Args:
        names: names of the given settings, without the prefix ``kafka.``, like all following names.
        known: settings that have an effect.
        no_effect: settings without an effect.
        unsupported: settings that are rejected, with the reasons.
        user: "source" or "sink", for the messages.
        ignores_unknown: True to log unknown settings instead of rejecting them.

    Raises:
        SparkOptionError: if a setting is unsupported or unknown.
    """
    known = frozenset(known)
    for name in names:
        if name in unsupported:
            raise SparkOptionError(f"{PREFIX}{name} is not supported: {unsupported[name]}")
        if name in no_effect:
            log.warning("%s%s has no effect on a partage %s", PREFIX, name, user)
        elif name not in known:
            message = f"{PREFIX}{name} is not a setting of this {user}"
            if not ignores_unknown:
                hint = suggest_name(name, sorted({*known, *no_effect}), prefix=PREFIX)
                raise SparkOptionError(f"{message}{hint} ({UNKNOWN_OPTIONS}=warn ignores it)")
            log.warning("%s; ignored because %s=warn", message, UNKNOWN_OPTIONS)
