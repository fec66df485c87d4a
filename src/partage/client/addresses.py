"""Broker addresses: HOST:PORT, and the comma-separated list in ``bootstrap.servers``."""

from __future__ import annotations

from typing import NamedTuple


class InvalidAddressError(ValueError):
    """Raised for text that is not HOST:PORT."""


class Address(NamedTuple):
    """A host and a TCP port, written HOST:PORT, with an IPv6 host in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap_servers(text: str) -> list[Address]:
    """Parse ``bootstrap.servers``: HOST:PORT, several separated by commas.

    Raises:
        InvalidAddressError: An address does not have that form, or there is none.
    """
    parts = [part.strip() for part in text.split(",")]
    found = [_parse(part) for part in parts if part]
    if not found:
        raise InvalidAddressError(
            "bootstrap.servers is empty; write HOST:PORT, several separated by commas"
        )
    return list(dict.fromkeys(found))


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
