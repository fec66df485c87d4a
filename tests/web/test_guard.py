"""Accepted requests, and security headers of responses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.web.guard import Guard, is_own_host


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8080",
        "LOCALHOST.",
        "127.0.0.1:8080",
        "10.1.2.3",
        "[::1]:8080",
        "[fe80::1]",
        "kafka-page.example:80",
    ],
)
def test_own_host_names_are_accepted(host: str) -> None:
    assert is_own_host(host, {"kafka-page.example"})


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8080",
        "localhost:8080:80",
        "localhost@evil.example",
        "[::1",
        "::1",
        "127.1.evil",
        "localhost\x00",
    ],
)
def test_other_host_names_are_rejected(host: str) -> None:
    assert not is_own_host(host, {"kafka-page.example"})


@given(st.text())
def test_arbitrary_host_text_is_rejected(host: str) -> None:
    if is_own_host(host, ()):
        assert host.strip().lower().startswith("localhost") or set(host) & set("0123456789")


async def asked(method: str, *hosts: str) -> tuple[int, dict[str, str]]:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"well"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    headers = [(b"host", host.encode()) for host in hosts]
    scope = {"type": "http", "method": method, "headers": headers}
    await Guard(application, ["page.example"])(scope, receive, send)
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told


@pytest.mark.parametrize(
    ("method", "hosts", "status"),
    [
        ("GET", ["localhost:1"], 200),
        ("HEAD", ["page.example"], 200),
        ("POST", ["localhost"], 405),
        ("DELETE", ["localhost"], 405),
        ("OPTIONS", ["localhost"], 405),
        ("GET", ["evil.example"], 421),
        ("GET", [], 421),
        ("GET", ["localhost", "evil.example"], 421),
    ],
)
def test_guard_checks_method_and_host(method: str, hosts: list[str], status: int) -> None:
    found, headers = asyncio.run(asked(method, *hosts))
    assert found == status
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
