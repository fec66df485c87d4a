"""librdkafka's properties in the words of Partage's own consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from partage.client.consumer import BadOption
from partage.client.consumer.options import option_names
from partage.client.errors import ClientError
from partage.client.options import ClientOptions, RetryPolicy
from partage.client.security.errors import SecurityError
from partage.client.security.options import (
    SECURITY_NAMES,
    BadSecurityOption,
    security_options,
)
from partage.client.security.tls import make_context
from partage.console.failure import Failure, misused
from partage.sync import Consumer

#: What any group goes by: members of Java's default, librdkafka's and our own may be in it.
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
#: Ours to say, or said by something else.
_ASIDE: Final = frozenset(
    {"bootstrap.servers", "group.id", "sasl.oauthbearer.method", "group.protocol"}
)
_SECURITY: Final = ("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.")
_TRUTHS: Final = {"true": True, "1": True, "false": False, "0": False}


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """How to read in a group; ``commit_every_s`` is None if nothing is to be committed."""

    bootstrap_servers: str
    options: dict[str, Any]
    commit_every_s: float | None

    def consumer(self) -> Consumer:
        """A consumer of these options.

        Raises:
            Failure: they are not ones that it can have.
        """
        try:
            return Consumer(self.bootstrap_servers, **self.options)
        except (BadOption, BadSecurityOption) as error:
            raise misused(str(error)) from error
        except (ClientError, SecurityError, ValueError, TypeError) as error:
            raise Failure(str(error)) from error


def sharing(
    bootstrap_servers: str, properties: Mapping[str, str], defaults: Mapping[str, Any]
) -> Sharing:
    """How to read in a group: ``defaults`` in our words, and what the user says before them.

    Raises:
        Failure: as `consumer_options`.
    """
    options = {**defaults, **consumer_options(properties)}
    every_ms = options.pop("auto_commit_interval_ms", 5_000)
    commits = options.pop("enable_auto_commit", True)
    return Sharing(
        bootstrap_servers=bootstrap_servers,
        options={**options, "enable_auto_commit": False},
        commit_every_s=every_ms / 1000 if commits else None,
    )


def consumer_options(properties: Mapping[str, str]) -> dict[str, Any]:
    """What the user says, in our words; heartbeats keep to a session of the user's.

    What only librdkafka has and changes nothing of what is read is passed over.

    Raises:
        Failure: the user asks for what our consumer has no equal of.
    """
    given: dict[str, Any] = {}
    for name, value in properties.items():
        if name == "ssl.endpoint.identification.algorithm":
            given["ssl_check_hostname"] = value.strip().lower() != "none"
        elif name not in _ASIDE:
            option = _RENAMED.get(name, name.replace(".", "_"))
            if option in option_names() or option in SECURITY_NAMES:
                given[option] = _value(name, option, value)
            elif name.startswith(_SECURITY):
                raise misused(
                    f"{name} is librdkafka's own, and members of groups are Partage's; give "
                    "certificates and keys as files in PEM, logins by sasl.username and "
                    "sasl.password"
                )
    if "session_timeout_ms" in given and "heartbeat_interval_ms" not in given:
        given["heartbeat_interval_ms"] = max(1, min(3_000, given["session_timeout_ms"] // 3))
    return given


def client_options(properties: Mapping[str, str], timeout_ms: int) -> ClientOptions | None:
    """How to reach a cluster, and answers that come within ``timeout_ms``.

    None if what the user says of security is librdkafka's own, such as a directory of certificates:
    then only librdkafka gets in.
    """
    try:
        given = consumer_options(properties)
        security = security_options({n: v for n, v in given.items() if n in SECURITY_NAMES})
        make_context(security)
    except (Failure, BadSecurityOption):
        return None
    return ClientOptions(
        client_id=properties.get("client.id", "partage"),
        connect_timeout_ms=timeout_ms,
        request_timeout_ms=timeout_ms,
        retries=RetryPolicy(timeout_ms=timeout_ms),
        security=security,
    )


def _value(name: str, option: str, text: str) -> Any:
    if option == "partition_assignment_strategy":
        return [each.strip() for each in text.split(",")]
    if option == "auto_offset_reset":
        return _RESETS.get(text, text)
    if option == "security_protocol":
        return text.upper()
    if option in ("enable_auto_commit", "check_crcs", "sasl_oauthbearer_header_urlencode"):
        if text.lower() not in _TRUTHS:
            raise misused(f"{name}={text}: it is true or false")
        return _TRUTHS[text.lower()]
    if option.endswith(("_ms", "_bytes", "_bytes_max", "_records")):
        try:
            return int(text)
        except ValueError:
            raise misused(f"{name}={text}: it takes a number") from None
    return text
