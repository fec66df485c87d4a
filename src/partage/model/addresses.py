"""Addresses in the form HOST:PORT."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """A host and a TCP port, written HOST:PORT, with an IPv6 host in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return format_address(self.host, self.port)


class AddressParseError(ValueError):
    """Raised for text that is not HOST:PORT."""


def parse_address(text: str) -> Address:
    """Return host and port of a HOST:PORT text. An IPv6 host is in brackets.

    Raises:
        AddressParseError: The text is not HOST:PORT; the message quotes it.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not 0 <= int(port) <= 65535:
        raise AddressParseError(
            f"invalid address {text!r}; use HOST:PORT, for example 127.0.0.1:9092"
        )
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def format_address(host: str, port: int) -> str:
    """Return HOST:PORT in the form that `parse_address` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_wildcard(host: str) -> bool:
    """True if a host means all local addresses: valid for listening, not for connecting."""
    return host in ("", "*", "0.0.0.0", "::")
