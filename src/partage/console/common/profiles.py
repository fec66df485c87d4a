"""Profiles: named clusters with their client properties, in one TOML file.

The file is ``$PARTAGE_CONFIG``, otherwise ``$XDG_CONFIG_HOME/partage/config.toml``, otherwise
``~/.config/partage/config.toml``. The keys of a profile are the properties of a Kafka client, as in
a file for ``--command-config``::

    [profiles.production]
    bootstrap.servers = "kafka-1:9093,kafka-2:9093"
    security.protocol = "SASL_SSL"
    sasl.mechanism = "SCRAM-SHA-512"
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from partage.console.common.errors import usage_error
from partage.console.common.java_properties import to_librdkafka
from partage.console.common.suggestions import did_you_mean

CONFIG_VARIABLE: Final = "PARTAGE_CONFIG"


def config_path() -> Path:
    """Return the path of the file with the profiles, whether it exists or not."""
    if named := os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    # The XDG specification says that a relative path is invalid and must be ignored.
    return (base if base.is_absolute() else Path.home() / ".config") / "partage" / "config.toml"


def profile_names() -> list[str]:
    """Return the names of all profiles, sorted.

    Raises:
        CommandError: As `read_profile`.
    """
    return sorted(_profiles(config_path()))


def read_profile(name: str) -> dict[str, str]:
    """Return the librdkafka properties of a profile.

    Raises:
        CommandError: The file cannot be read, has no such profile, or librdkafka has no equivalent
            of a property.
    """
    path = config_path()
    profiles = _profiles(path)
    if name not in profiles:
        known = f"; it has {', '.join(sorted(profiles))}" if profiles else ""
        raise usage_error(f"no profile {name!r} in {path}{did_you_mean(name, profiles) or known}")
    profile = profiles[name]
    if not isinstance(profile, dict):
        raise usage_error(f"profile {name!r} in {path} must be a table: [profiles.{name}]")
    try:
        return to_librdkafka(dict(_properties(profile)))
    except ValueError as error:
        raise usage_error(f"profile {name!r} in {path}: {error}") from error


def _profiles(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise usage_error(
            f"--profile needs the file {path}, which does not exist; create it, or set "
            f"{CONFIG_VARIABLE} to another file"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise usage_error(f"cannot read the profiles in {path}: {reason}") from error
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict):
        raise usage_error(f"profiles in {path} must be tables: [profiles.NAME]")
    return profiles


def _properties(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values. In TOML, ``security.protocol`` is a key in a table ``security``.

    Raises:
        ValueError: A value has no form as the text of a property.
    """
    for key, value in table.items():
        name = prefix + key
        match value:
            case dict():
                yield from _properties(value, f"{name}.")
            case bool():
                yield name, str(value).lower()
            case str() | int() | float():
                yield name, str(value)
            case list() if all(isinstance(each, str) for each in value):
                yield name, ",".join(value)
            case _:
                raise ValueError(f"{name} must be a text, a number, true, false or a list of texts")
