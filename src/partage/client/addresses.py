"""Broker addresses: HOST:PORT, and the lists of them in ``bootstrap.servers``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from partage.model.addresses import Address
from partage.model.arguments import InvalidArgumentError, shorten


class InvalidAddressError(InvalidArgumentError):
    """Raised for an address that is not HOST:PORT."""


#: Addresses in the forms that users may pass.
BootstrapServers = str | Iterable[str]


def parse_bootstrap_servers(servers: BootstrapServers) -> list[Address]:
    """Parse ``bootstrap.servers``: HOST:PORT, several as a list or separated by commas.

    Raises:
        InvalidAddressError: An address does not have that form, or there is none.
    """
    if isinstance(servers, bytes | Mapping) or not isinstance(servers, Iterable):
        raise InvalidAddressError(
            f"bootstrap_servers={shorten(servers)}: expected a string or a list of HOST:PORT"
        )
    texts = [servers] if isinstance(servers, str) else list(servers)
    parts = [part.strip() for text in texts for part in _checked_text(text).split(",")]
    found = [_parse(part) for part in parts if part]
    if not found:
        raise InvalidAddressError(
            "bootstrap.servers is empty; write HOST:PORT, several separated by commas"
        )
    return list(dict.fromkeys(found))


def _checked_text(text: Any) -> str:
    if not isinstance(text, str):
        raise InvalidAddressError(
            f"{shorten(text)} is not a broker address; write HOST:PORT, such as 'kafka1:9092'"
        )
    return text


def _parse(text: str) -> Address:
    # The Java client allows a listener name before the address: PLAINTEXT://host:9092.
    _, _, bare = text.rpartition("://")
    host, colon, port = bare.rpartition(":")
    is_number = port.isascii() and port.isdigit() and 0 < int(port) <= 65535
    is_ipv6 = host.startswith("[") and host.endswith("]")
    if not colon or not host or not is_number or (":" in host and not is_ipv6):
        raise InvalidAddressError(
            f"{text!r} is not a broker address; write HOST:PORT, such as kafka1:9092"
        )
    return Address(host[1:-1] if is_ipv6 else host, int(port))
