"""Groups of one broker, as its responses describe them."""

from __future__ import annotations

import asyncio

import pytest

from client.scripted_broker import Script, ScriptedBroker
from partage.client.cluster import Cluster
from partage.client.errors import BrokerResponseError
from partage.client.options import ClientOptions
from partage.console.groups.coordinated_groups import (
    CoordinatedGroup,
    fetch_groups_by_name,
    fetch_groups_of_broker,
)
from partage.model.groups import MemberDescription, Node
from partage.wire.apis.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from partage.wire.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from partage.wire.apis.list_groups import ListedGroup, ListGroupsResponse
from partage.wire.types import Message

COORDINATOR_LOADING, TOPIC_NOT_AUTHORIZED, NOT_AUTHORIZED, NOT_FOUND = 14, 29, 30, 69


def classic(name: str, error: int = 0, state: str = "Stable") -> DescribedGroup:
    """A classic group whose member's metadata and assignment cannot be decoded."""
    member = DescribedGroupMember(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        member_metadata=b"?",
        member_assignment=b"?",
    )
    return DescribedGroup(
        error_code=error,
        group_id=name,
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=[] if error or state == "Dead" else [member],
    )


def consumer(name: str, error: int = 0) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=error,
        group_id=name,
        group_state="Assigning",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="uniform",
        members=[],
    )


def groups_by_name(
    names: list[str],
    listed: list[ListedGroup],
    described: list[DescribedGroup],
    consumers: list[DescribedConsumerGroup],
) -> dict[str, CoordinatedGroup]:
    """Return the groups of these names from a coordinator with these responses."""
    script = scripted(listed, described, consumers)

    async def main() -> dict[str, CoordinatedGroup]:
        async with (
            ScriptedBroker(script) as broker,
            Cluster([broker.address], ClientOptions()) as client,
        ):
            return await fetch_groups_by_name(client, broker.address, names, Node(1, "h", 9))

    return asyncio.run(main())


def scripted(
    listed: list[ListedGroup],
    described: list[DescribedGroup],
    consumers: list[DescribedConsumerGroup],
    error: int = 0,
) -> Script:
    """Return the script of a broker with these responses; ``error`` is that of ListGroups."""
    answers: dict[str, Message] = {
        "ListGroups": ListGroupsResponse(error_code=error, groups=listed),
        "DescribeGroups": DescribeGroupsResponse(groups=described),
        "ConsumerGroupDescribe": ConsumerGroupDescribeResponse(groups=consumers),
    }
    return lambda asked: answers.get(asked.api.name)


def groups_of(
    listed: list[ListedGroup],
    described: list[DescribedGroup],
    consumers: list[DescribedConsumerGroup] | None = None,
    error: int = 0,
) -> tuple[dict[str, CoordinatedGroup], list[str]]:
    """Return the groups of a broker with these responses, and the names of its requests."""
    script = scripted(listed, described, consumers or [], error)

    async def main() -> tuple[dict[str, CoordinatedGroup], list[str]]:
        async with (
            ScriptedBroker(script) as broker,
            Cluster([broker.address], ClientOptions()) as client,
        ):
            found = await fetch_groups_of_broker(client, broker.address, Node(1, "h", 9))
            return found, broker.names()

    return asyncio.run(main())


def listed(name: str, kind: str = "classic", state: str = "Stable") -> ListedGroup:
    return ListedGroup(group_id=name, protocol_type="x", group_state=state, group_type=kind)


def test_broker_without_groups_gets_one_request() -> None:
    assert groups_of([], []) == ({}, ["ListGroups"])


def test_undecodable_member_keeps_sizes() -> None:
    found, requests = groups_of([listed("g")], [classic("g")])
    assert requests == ["ListGroups", "DescribeGroups"]
    described = found["g"].description
    assert (described.type, described.state, described.protocol) == ("Classic", "Stable", "range")
    assert described.members == [
        MemberDescription(
            member_id="m",
            group_instance_id="i",
            client_id="c",
            host="/h",
            partitions=[],
            subscription=None,
            metadata_bytes=1,
            assignment_bytes=1,
        )
    ]


@pytest.mark.parametrize("missing", [classic("g", NOT_FOUND), classic("g", state="Dead")])
def test_group_unknown_as_classic_is_described_as_consumer_group(missing: DescribedGroup) -> None:
    found, requests = groups_of([listed("g", "consumer")], [missing], [consumer("g")])
    assert requests == ["ListGroups", "DescribeGroups", "ConsumerGroupDescribe"]
    described = found["g"].description
    assert (described.type, described.group_epoch, described.target_epoch) == ("Consumer", 5, 4)
    assert found["g"].raw is None


def test_share_group_is_listed_with_type_and_state() -> None:
    found, _ = groups_of(
        [listed("g", "share", "Empty")], [classic("g", NOT_FOUND)], [consumer("g", NOT_FOUND)]
    )
    described = found["g"].description
    assert (described.type, described.state, described.members) == ("Share", "Empty", [])


def test_share_group_by_name_has_type_and_state() -> None:
    unknown = [classic("g", NOT_FOUND), classic("none", NOT_FOUND)]
    found = groups_by_name(
        ["g", "none"],
        [listed("g", "share", "Empty"), listed("other")],
        unknown,
        [consumer("g", NOT_FOUND), consumer("none", NOT_FOUND)],
    )
    assert {name: group.description.type for name, group in found.items()} == {"g": "Share"}


def test_refused_description_by_name_raises() -> None:
    refused = [classic("g", NOT_FOUND)], [consumer("g", TOPIC_NOT_AUTHORIZED)]
    with pytest.raises(BrokerResponseError, match="TOPIC_AUTHORIZATION_FAILED"):
        groups_by_name(["g"], [listed("g", "consumer")], *refused)
    found, _ = groups_of([listed("g", "consumer", "Stable")], *refused)
    assert (found["g"].description.type, found["g"].description.state) == ("Consumer", "Stable")


def test_group_without_authorization_is_unknown() -> None:
    found, requests = groups_of([listed("g")], [classic("g", NOT_AUTHORIZED)])
    assert requests == ["ListGroups", "DescribeGroups"]
    described = found["g"].description
    assert (described.type, described.state, described.members) == (None, "Unknown", [])


def test_loading_coordinator_raises_retriable_error() -> None:
    for responses in (
        ([], [], [], COORDINATOR_LOADING),
        ([listed("g")], [classic("g", COORDINATOR_LOADING)], [], 0),
        (
            [listed("g")],
            [classic("g", NOT_FOUND)],
            [consumer("g", COORDINATOR_LOADING)],
            0,
        ),
    ):
        with pytest.raises(BrokerResponseError, match="COORDINATOR_LOAD_IN_PROGRESS") as raised:
            groups_of(*responses)
        assert raised.value.is_retriable
