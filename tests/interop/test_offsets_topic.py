"""What a coordinator stores, as Apache Kafka's own formatters read it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker.asking import create
from broker.grouping import commit, join, stable
from broker.raw import Raw
from interop.ours import PartageBroker
from interop.peers.tools import tool
from partage.store.shard_log import TOPIC, shard_of

pytestmark = pytest.mark.interop

FORMATTERS = "org.apache.kafka.tools.consumer"
SHARDS = 50


def stored(raw: Raw, group: str, formatter: str) -> list[dict[str, Any]]:
    """The values that a formatter finds under a group's keys, the oldest first."""
    host, port = raw.socket.getpeername()
    text = tool(
        *("console-consumer", f"{host}:{port}", "--topic", TOPIC, "--offset", "earliest"),
        *("--partition", str(shard_of(group, SHARDS)), "--timeout-ms", "3000"),
        *("--formatter", f"{FORMATTERS}.{formatter}"),
    ).lstrip()
    found = []
    while text:
        record, end = json.JSONDecoder().raw_decode(text)
        text = text[end:].lstrip()
        if record["key"]["data"]["group"] == group:
            found.append(record["value"] and record["value"]["data"])
    return found


@pytest.fixture(scope="module")
def raw(peers: None) -> Iterator[Raw]:
    with PartageBroker() as broker, Raw(broker.bootstrap) as connected:
        create(connected, "t")
        yield connected


def test_a_stable_group_and_its_offsets(raw: Raw) -> None:
    joined = stable(raw, "größe", group_instance_id="i")
    assert commit(raw, "größe", "t", 5, joined=joined, metadata="note") == 0
    (offset,) = stored(raw, "größe", "OffsetsMessageFormatter")
    assert (offset["offset"], offset["leaderEpoch"], offset["metadata"]) == (5, -1, "note")

    group = stored(raw, "größe", "GroupMetadataMessageFormatter")[-1]
    assert (group["protocolType"], group["protocol"], group["generation"]) == ("test", "p", 1)
    (member,) = group["members"]
    assert group["leader"] == member["memberId"] == joined.member_id
    assert (member["groupInstanceId"], member["clientId"]) == ("i", "raw")
    assert (member["sessionTimeout"], member["rebalanceTimeout"]) == (30_000, 30_000)
    assert base64.b64decode(member["subscription"]) == b"m"
    assert base64.b64decode(member["assignment"]) == b"all"


def test_a_group_that_awaits_its_sync(raw: Raw) -> None:
    """A tag of ours says so, and is skipped."""
    joined = join(raw, "awaiting")
    (group,) = stored(raw, "awaiting", "GroupMetadataMessageFormatter")
    assert (group["protocol"], group["generation"]) == ("p", 1)
    assert [m["memberId"] for m in group["members"]] == [joined.member_id]
