"""Ports for servers of other programs are unique and are not ephemeral ports."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import free_ports

PROCESSES = 8
PORTS = 50


def test_free_ports_at_the_same_time_are_different() -> None:
    """Each call opens the counter for itself, so threads act like processes."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        found = [
            port for ports in pool.map(free_ports.free_ports, [PORTS] * PROCESSES) for port in ports
        ]
    assert len(set(found)) == PROCESSES * PORTS


@pytest.mark.parametrize(
    ("ephemeral", "is_used"),
    [
        ("32768\t60999\n", lambda port: 10_000 <= port < 32_768 or port > 60_999),
        ("10000 64000", lambda port: port > 64_000),
        ("1024 65535", lambda port: port >= 10_000),
    ],
)
def test_free_ports_avoid_ephemeral_range(
    ephemeral: str, is_used: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range without a thousand ports beside it cannot be avoided."""
    assert callable(is_used)
    (tmp_path / "range").write_text(ephemeral)
    monkeypatch.setattr(free_ports, "_EPHEMERAL", tmp_path / "range")
    assert all(map(is_used, free_ports.free_ports(20)))
