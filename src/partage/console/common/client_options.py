"""Translation of librdkafka properties into options of Partage's own client and consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_origin

import msgspec

from partage.client.consumer import InvalidOptionError
from partage.client.consumer.options import ConsumerOptions, option_names, option_type
from partage.client.errors import ClientError
from partage.client.options import ClientOptions, RetryPolicy
from partage.client.security.credentials import check_usable
from partage.client.security.errors import SecurityError
from partage.client.security.options import (
    SECURITY_OPTION_NAMES,
    InvalidSecurityOptionError,
    parse_security_options,
)
from partage.console.common.errors import CommandError, usage_error
from partage.sync import Consumer

#: Assignors offered to a group, so that members with the defaults of Java, librdkafka or Partage
#: can join.
ASSIGNORS: Final = ["cooperative-sticky", "range", "roundrobin", "sticky"]

_RENAMED: Final = {
    "fetch.message.max.bytes": "max_partition_fetch_bytes",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
    "https.ca.location": "sasl_oauthbearer_ssl_cafile",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.oauthbearer.client.id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl.oauthbearer.client.secret": "sasl_oauthbearer_client_credentials_client_secret",
    "socket.timeout.ms": "request_timeout_ms",
    "ssl.ca.location": "ssl_cafile",
    "ssl.ca.pem": "ssl_cadata",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
}
_RESETS: Final = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "error": "none",
}
#: Properties that a command sets itself, or that have no equivalent option.
_ASIDE: Final = frozenset(
    {"bootstrap.servers", "group.id", "sasl.oauthbearer.method", "group.protocol"}
)
_SECURITY: Final = ("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.")
_DEFAULTS: Final = ConsumerOptions()
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}


class GroupReaderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a consumer in a group.

    ``commit_every_s`` is the interval between commits; None disables commits.
    """

    bootstrap_servers: str
    options: dict[str, Any]
    commit_every_s: float | None

    def consumer(self) -> Consumer:
        """Return a consumer with these options.

        Raises:
            CommandError: An option is invalid, or the client cannot be created.
        """
        try:
            return Consumer(self.bootstrap_servers, **self.options)
        except (InvalidOptionError, InvalidSecurityOptionError) as error:
            raise usage_error(str(error)) from error
        except (ClientError, SecurityError, ValueError, TypeError) as error:
            raise CommandError(str(error)) from error


def property_names() -> list[str]:
    """Return the names of librdkafka properties that Partage's client knows, for suggestions."""
    names = {each.replace("_", ".") for each in {*option_names()} - {*_RENAMED.values()}}
    return sorted({*names, *_RENAMED, *_ASIDE})


def property_name(option: str) -> str:
    """Return librdkafka's name of an option of Partage's client."""
    names = {renamed: name for name, renamed in _RENAMED.items()}
    name = option.replace("_", ".")
    return name if option == "sasl_mechanism" else names.get(option, name)


def group_reader_options(
    bootstrap_servers: str, properties: Mapping[str, str], defaults: Mapping[str, Any]
) -> GroupReaderOptions:
    """Return the options of a consumer in a group.

    Args:
        bootstrap_servers: Comma-separated list of HOST:PORT.
        properties: librdkafka properties from the user; they override ``defaults``. With
            the consumer protocol the broker assigns, so the default assignors do not apply.
        defaults: Options of Partage's consumer.

    Raises:
        CommandError: As `consumer_options`.
    """
    given = consumer_options(properties)
    options = {**defaults, **given}
    if properties.get("group.protocol", "").lower() == "consumer":
        options["group_protocol"] = "consumer"
        if "partition_assignment_strategy" not in given:
            options.pop("partition_assignment_strategy", None)
    every_ms = options.pop("auto_commit_interval_ms", _DEFAULTS.auto_commit_interval_ms)
    commits = options.pop("enable_auto_commit", _DEFAULTS.enable_auto_commit)
    return GroupReaderOptions(
        bootstrap_servers=bootstrap_servers,
        options={**options, "enable_auto_commit": False},
        commit_every_s=every_ms / 1000 if commits else None,
    )


def consumer_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return librdkafka properties as options of Partage's consumer.

    Properties that exist only in librdkafka are ignored, unless they concern security. If the
    session timeout is given without a heartbeat interval, the interval is at most a third of it.

    Raises:
        CommandError: A security property works only in librdkafka, or a value is invalid.
    """
    given: dict[str, Any] = {}
    for name, value in properties.items():
        if name == "ssl.endpoint.identification.algorithm":
            given["ssl_check_hostname"] = value.strip().lower() != "none"
        elif name not in _ASIDE:
            option = _RENAMED.get(name, name.replace(".", "_"))
            if option in option_names():
                given[option] = _value(name, option, value)
            elif name.startswith(_SECURITY):
                raise usage_error(
                    f"{name} works only in librdkafka, but Partage's client joins groups; use "
                    "PEM files for certificates and keys, and sasl.username and "
                    "sasl.password for logins"
                )
    if "session_timeout_ms" in given and "heartbeat_interval_ms" not in given:
        third_ms = given["session_timeout_ms"] // 3
        given["heartbeat_interval_ms"] = max(1, min(_DEFAULTS.heartbeat_interval_ms, third_ms))
    return given


def client_options(
    properties: Mapping[str, str], timeout_ms: int, retry_timeout_ms: int | None = None
) -> ClientOptions | None:
    """Return the options of Partage's client for a cluster, or None if only librdkafka can connect.

    None means that a security property works only in librdkafka, such as a directory of CA
    certificates, that the security options are invalid, or that a package is not installed.

    Args:
        properties: librdkafka properties from the user.
        timeout_ms: Timeout for connecting and for a request.
        retry_timeout_ms: Timeout for all retries of a request; ``timeout_ms`` if None.
    """
    try:
        given = consumer_options(properties)
        security = parse_security_options(
            {n: v for n, v in given.items() if n in SECURITY_OPTION_NAMES}
        )
        check_usable(security)
    except (CommandError, InvalidSecurityOptionError):
        return None
    return ClientOptions(
        client_id=properties.get("client.id", "partage"),
        connect_timeout_ms=timeout_ms,
        request_timeout_ms=timeout_ms,
        retries=RetryPolicy(
            timeout_ms=timeout_ms if retry_timeout_ms is None else retry_timeout_ms
        ),
        security=security,
    )


def own_client_options(properties: Mapping[str, str], timeout_ms: int) -> ClientOptions:
    """Return the options of Partage's client, for a command that needs it.

    Args:
        properties: As in `client_options`.
        timeout_ms: As in `client_options`.

    Raises:
        CommandError: Only librdkafka can connect.
    """
    options = client_options(properties, timeout_ms)
    if options is None:
        raise usage_error("the security settings work only in librdkafka; use PEM files")
    return options


def _value(name: str, option: str, text: str) -> Any:
    if option == "partition_assignment_strategy":
        return [each.strip() for each in text.split(",")]
    if option == "auto_offset_reset":
        return _RESETS.get(text, text)
    if option == "security_protocol":
        return text.upper()
    kind = option_type(option)
    if kind is bool:
        if text.lower() not in _TRUTHS:
            raise usage_error(f"invalid value {name}={text}: must be true or false")
        return _TRUTHS[text.lower()]
    if get_origin(kind) is tuple:
        return tuple(each.strip() for each in text.split(","))
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise usage_error(f"invalid value {name}={text}: must be an integer") from None
    return text
