"""Translation of Kafka's Java properties files into librdkafka properties.

``--command-config`` takes the same files as Kafka's own tools. Most names are the same; key stores,
trust stores and JAAS are translated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from partage.client.security.jaas import parse_jaas
from partage.console.common.errors import usage_error
from partage.console.common.key_stores import key_store_properties, trust_store_properties

_RENAMED: Final = {"request.timeout.ms": "socket.timeout.ms"}
_WITHOUT_EQUAL: Final = frozenset(
    {
        "buffer.memory",
        "default.api.timeout.ms",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "value.deserializer",
        "value.serializer",
    }
)
"""Properties of Java clients that are ignored."""

_TOKEN_LOGIN: Final = "OAuthBearerLoginModule"
_PASSWORD: Final = {"username": "sasl.username", "password": "sasl.password"}
_LOGINS: Final = {
    "PlainLoginModule": _PASSWORD,
    "ScramLoginModule": _PASSWORD,
    _TOKEN_LOGIN: {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
}
_TOKEN_HANDLER: Final = ("sasl.login.callback.handler.class", "OAuthBearerLoginCallbackHandler")
"""The handler that requests tokens from an endpoint, as librdkafka does itself."""

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """Return the librdkafka properties for a Java properties file.

    Raises:
        CommandError: The file cannot be read, or librdkafka has no equivalent of a property.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise usage_error(f"cannot read {path}: {reason}") from error
    java = dict(parse_properties(text))
    try:
        return to_librdkafka(java)
    except ValueError as error:
        raise usage_error(f"{path}: {error}") from error


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values as java.util.Properties reads them."""
    pending = ""
    for line in text.splitlines():
        line = line.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            pending += line[:-1]
            continue
        yield _split(pending + line)
        pending = ""
    if pending:
        yield _split(pending)


def _split(line: str) -> tuple[str, str]:
    matched = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
    assert matched is not None  # Every part of the pattern may be empty.
    name, value = matched.groups()
    return _plain(name), _plain(value)


def _plain(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        code, char = found.groups()
        return chr(int(code, 16)) if code else _ESCAPES.get(char, char)

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", one, text)


def to_librdkafka(java: dict[str, str]) -> dict[str, str]:
    """Return Java properties under librdkafka's names. Unknown names are passed on unchanged.

    Raises:
        ValueError: librdkafka cannot use a key store or a login module.
    """
    native: dict[str, str] = {}
    for name, value in java.items():
        if name == "sasl.jaas.config":
            native |= _jaas(value)
        elif name.startswith(("ssl.truststore.", "ssl.keystore.")) or _is_ignored(name, value):
            continue
        elif name == "ssl.endpoint.identification.algorithm":
            native[name] = value or "none"
        else:
            native[_RENAMED.get(name, name)] = value
    return native | _stores(java)


def _is_ignored(name: str, value: str) -> bool:
    return name in _WITHOUT_EQUAL or (name, value.rpartition(".")[2]) == _TOKEN_HANDLER


def _jaas(value: str) -> dict[str, str]:
    module, options = parse_jaas(value)
    names = _LOGINS.get(module)
    if names is None:
        raise ValueError(
            f"sasl.jaas.config names a login module other than {', '.join(_LOGINS)}; set "
            "librdkafka's sasl.* properties instead"
        )
    missing = [name for name in names if name not in options and name != "scope"]
    if missing:
        raise ValueError(f"sasl.jaas.config has no {' and no '.join(missing)}")
    native = {names[name]: text for name, text in options.items() if name in names}
    return native | ({"sasl.oauthbearer.method": "oidc"} if module == _TOKEN_LOGIN else {})


def _stores(java: dict[str, str]) -> dict[str, str]:
    native: dict[str, str] = {}
    if "ssl.truststore.certificates" in java:
        native["ssl.ca.pem"] = java["ssl.truststore.certificates"]
    elif "ssl.truststore.location" in java:
        declared = java.get("ssl.truststore.type", "JKS")
        native |= trust_store_properties(java["ssl.truststore.location"], declared)
    if "ssl.keystore.key" in java:
        native["ssl.key.pem"] = java["ssl.keystore.key"]
        native["ssl.certificate.pem"] = java.get("ssl.keystore.certificate.chain", "")
    elif "ssl.keystore.location" in java:
        native |= key_store_properties(
            java["ssl.keystore.location"],
            java.get("ssl.keystore.type", "JKS"),
            java.get("ssl.keystore.password", ""),
        )
    return native
