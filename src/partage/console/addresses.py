"""HOST:PORT, as it is written on a command line."""

from __future__ import annotations


class BadAddress(ValueError):  # noqa: N818 - named after what it is
    """Text that is no HOST:PORT."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port; an IPv6 host stands in brackets.

    Raises:
        BadAddress: it says what is wrong.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not 0 <= int(port) <= 65535:
        raise BadAddress(f"{text!r} is no address; write HOST:PORT, such as 127.0.0.1:9092")
    return host.removeprefix("[").removesuffix("]"), int(port)


def format_address(host: str, port: int) -> str:
    """HOST:PORT, as `parse_address` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_everywhere(host: str) -> bool:
    """Whether a host stands for all of this machine's: right to listen on, wrong to connect to."""
    return host in ("", "*", "0.0.0.0", "::")
