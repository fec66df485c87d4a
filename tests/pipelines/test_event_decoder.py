"""Records that are not group events do not end the analysis."""

from __future__ import annotations

import json
from typing import Any

import pytest

from partage.pipelines.rebalances.event_decoder import parse_event
from partage.pipelines.rebalances.tables import TopicAnalysis, make_table
from partage.store.group_events import decode_event, encode_event

from .event_script import COOPERATIVE, EAGER, events


@pytest.mark.parametrize("script", [EAGER, COOPERATIVE, "14.0 lag 0:5 1:2"])
def test_broker_event_round_trips(script: str) -> None:
    for event in events(script, "tower"):
        value = encode_event(event)
        assert encode_event(parse_event(value)) == value
        assert decode_event(value) == event


@pytest.mark.parametrize(
    "changed",
    [
        {"at_ms": 2**62},
        {"at_ms": -1},
        {"generation": 2**31},
        {"lag": {"t": {str(2**40): 1}}},
        {"lag": {"t": {"0": 2**70}}},
        {"count": 2**63},
        {"session_timeout_ms": 2**62},
        {"broker_id": 2**31},
        {"broker_id": 1, "epoch": -1},
        {"broker_id": 1, "epoch": 2**63},
        {"members": [{"member_id": "m", "joined_ms": 2**62}]},
        {"members": [{"member_id": "m", "assigned": {"t": [2**31]}}]},
    ],
)
@pytest.mark.parametrize("kind", ["joined", "left", "lag", "commit refused", "assigned", "dropped"])
def test_impossible_number_counts_as_unreadable(kind: str, changed: Any) -> None:
    event = {"version": 1, "event": kind, "at_ms": 1, "group_id": "g", "generation": 1}
    analysis = TopicAnalysis()
    analysis.add("g", json.dumps(event).encode())
    analysis.add("g", json.dumps(event | changed).encode())
    tables = analysis.tables()
    assert sum(make_table("groups", tables["groups"])["unreadable"].to_pylist()) == 1
    for name, of in tables.items():
        make_table(name, of)
