"""Configs of one group with the consumer protocol."""

from __future__ import annotations

from broker.config_requests import GROUP, alter, config
from broker.raw_client import RawClient
from interop.members import SHORT_SESSION_MS
from partage.wire.apis.incremental_alter_configs import SET
from polled_conditions import PATIENCE_S, eventually


def shorten_sessions(bootstrap: str, group: str) -> None:
    """Let the sessions of a group's members end after `SHORT_SESSION_MS` without a heartbeat.

    The session of a member keeps its length until the next heartbeat.
    """
    name, value = "consumer.session.timeout.ms", str(SHORT_SESSION_MS)
    with RawClient(bootstrap, timeout_s=PATIENCE_S) as raw:
        assert alter(raw, (SET, name, value), name=group, kind=GROUP) == 0
        eventually(lambda: config(raw, name, name=group, kind=GROUP).value == value)
