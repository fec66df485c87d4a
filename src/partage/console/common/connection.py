"""The properties for connecting to a cluster, from all options and variables that set them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from partage.console.common.errors import usage_error
from partage.console.common.pairs import parse_pairs

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE: Final = "PARTAGE_BOOTSTRAP_SERVER"
_SERVERS: Final = "bootstrap.servers"
_MECHANISMS: Final = {"sasl.mechanism", "sasl.mechanisms"}


class ConnectionProperties(NamedTuple):
    """librdkafka properties, and the place where the user has set each of them.

    An origin is a text for messages, such as ``profile 'production' in config.toml``.
    """

    values: dict[str, str]
    origins: dict[str, str]


def connection_properties(
    given: Mapping[str, Any], sources: Mapping[str, str]
) -> ConnectionProperties:
    """Return the librdkafka properties for connecting, always with ``bootstrap.servers``.

    Later sources override earlier ones: variables of the environment, ``--profile``,
    ``--command-config``, ``--bootstrap-server``, ``-X``.

    Args:
        given: Values of the parameters bootstrap_server, profile, command_config and properties.
        sources: Origin of each value: ``COMMANDLINE``, ``ENVIRONMENT`` or ``DEFAULT``.

    Raises:
        CommandError: A file cannot be read, a profile does not exist, a text is not NAME=VALUE, or
            SASL has no mechanism.
    """
    servers, profile, config = (
        given.get(name) for name in ("bootstrap_server", "profile", "command_config")
    )
    found: dict[str, str] = {}
    origins: dict[str, str] = {}

    def apply(properties: Mapping[str, str], origin: str) -> None:
        found.update(properties)
        origins.update(dict.fromkeys(properties, origin))

    if profile:
        from partage.console.common.profiles import config_path, read_profile

        apply(read_profile(profile), f"profile {profile!r} in {config_path()}")
    is_profile_stronger = sources.get("profile") == "COMMANDLINE" and _SERVERS in found
    if sources.get("bootstrap_server") == "ENVIRONMENT" and not is_profile_stronger:
        apply({_SERVERS: str(servers)}, BOOTSTRAP_VARIABLE)
    if config:
        from partage.console.common.java_properties import read_properties

        apply(read_properties(config), str(config))
    if sources.get("bootstrap_server") == "COMMANDLINE":
        apply({_SERVERS: str(servers)}, "--bootstrap-server")
    apply(parse_pairs(given.get("properties") or [], "-X"), "-X")
    _check_mechanism(found)
    return ConnectionProperties({_SERVERS: BOOTSTRAP_DEFAULT, **found}, origins)


def _check_mechanism(properties: Mapping[str, str]) -> None:
    """Raise `CommandError` if SASL has no mechanism: librdkafka would choose GSSAPI silently."""
    protocol = properties.get("security.protocol", "")
    if protocol.lower().startswith("sasl_") and not _MECHANISMS & properties.keys():
        raise usage_error(
            f"security.protocol={protocol} needs a mechanism: add for example "
            "-X sasl.mechanism=SCRAM-SHA-512, or sasl.mechanism=GSSAPI for Kerberos"
        )
