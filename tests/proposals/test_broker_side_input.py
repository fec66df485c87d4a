"""Input of the first design's coordinator that could harm it, and what brokers know of others."""

from __future__ import annotations

import time

import pytest

from partage.proposals import machine
from partage.proposals.broker_side.coordinator import PushCoordinator
from partage.proposals.broker_side.events import BrokersChanged
from partage.proposals.broker_side.messages import (
    BrokerAddress,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    PushError,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
)
from partage.proposals.broker_side.records import partition_number
from partage.proposals.broker_side.settings import PushConsumerSettings, PushCoordinatorSettings
from partage.proposals.machine import ConnectionId
from partage.wire.types import Message

BROKERS = (BrokerAddress(id=3, host="h", port=1), BrokerAddress(id=4, host="h", port=2))


def coordinator(topics: dict[str, int] | None = None) -> PushCoordinator:
    made = PushCoordinator(PushCoordinatorSettings(broker_id=3))
    made.handle(machine.Elected(at_ms=0, topics=topics or {"t": 1}))
    return made


def ask(of: PushCoordinator, message: Message) -> Message:
    event = machine.MessageReceived(at_ms=0, connection=ConnectionId(1), message=message, draw=0)
    return of.handle(event).sends[0][1]


def register(of: PushCoordinator, group_id: str = "g", topic_count: str = '{"t":1}') -> PushError:
    response = ask(
        of,
        RegisterConsumerRequest(
            group_id=group_id,
            consumer_id="c",
            topic_count=topic_count,
            auto_commit=True,
            auto_offset_rest="smallest",
            session_timeout_ms=9_000,
        ),
    )
    assert isinstance(response, RegisterConsumerResponse)
    return PushError(response.error_code)


@pytest.mark.parametrize(
    "group_id", ["", ".", "..", "coordinator", "a/b", "/", "a\0", "ü", "a b", "g" * 250]
)
def test_group_id_without_a_zookeeper_path_is_refused(group_id: str) -> None:
    made = coordinator()
    assert register(made, group_id) is PushError.INVALID_REGISTRATION
    assert made.groups == {}
    with pytest.raises(ValueError, match="group_id"):
        PushConsumerSettings(
            bootstrap_brokers=BROKERS, group_id=group_id, consumer_id="c", topic_count='{"t":1}'
        )


@pytest.mark.parametrize("group_id", ["g", "coordinators", "a.b", "...", "A-1_x", "g" * 249])
def test_other_group_ids_are_accepted(group_id: str) -> None:
    assert register(coordinator(), group_id) is PushError.NONE


@pytest.mark.parametrize(
    "name", ["", "0", "-", "1-", "-1", "1--1", "1-\u0663", "1-" + "9" * 5_000, "x-1"]
)
def test_damaged_partition_string_has_no_number(name: str) -> None:
    assert partition_number(name) == -1


def test_any_broker_names_the_coordinator_that_zookeeper_has() -> None:
    made = PushCoordinator(PushCoordinatorSettings(broker_id=3))
    made.handle(BrokersChanged(at_ms=0, brokers=BROKERS, coordinator_id=4))
    assert ask(made, ClusterMetadataRequest()) == ClusterMetadataResponse(
        coordinator_id=4, brokers_info=list(BROKERS)
    )
    made.handle(BrokersChanged(at_ms=1, brokers=BROKERS[:1], coordinator_id=None))
    assert ask(made, ClusterMetadataRequest()) == ClusterMetadataResponse(
        error_code=PushError.COORDINATOR_NOT_AVAILABLE,
        coordinator_id=-1,
        brokers_info=list(BROKERS[:1]),
    )


def test_coordinator_names_itself() -> None:
    made = coordinator()
    made.handle(BrokersChanged(at_ms=0, brokers=BROKERS, coordinator_id=None))
    assert ask(made, ClusterMetadataRequest()) == ClusterMetadataResponse(
        coordinator_id=3, brokers_info=list(BROKERS)
    )


@pytest.mark.parametrize("topic_count", ["*1000*.*", "*1*(a+)+b", "!1!(.*a){30}b"])
def test_hostile_topic_count_takes_little_time(topic_count: str) -> None:
    begin = time.process_time()
    made = coordinator({f"{'a' * 60}{number}": 4 for number in range(1_000)})
    assert register(made, topic_count=topic_count) is PushError.NONE
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("consumer_id", "", "consumer_id has 0 bytes"),
        ("session_timeout_ms", 0, "session_timeout_ms=0 is below 1"),
        ("retry_backoff_ms", -1, "retry_backoff_ms=-1 is below 0"),
    ],
)
def test_invalid_setting_of_a_consumer_is_refused(name: str, value: object, reason: str) -> None:
    given = {"bootstrap_brokers": BROKERS, "group_id": "g", "consumer_id": "c"}
    with pytest.raises(ValueError, match=reason):
        PushConsumerSettings(**{**given, "topic_count": '{"t":1}', name: value})
