"""The designs with JoinGroup as real processes that are killed, stopped and restarted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from partage.testing import ThreadedBroker

from .proposal_processes import ProposalGroup

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["multi-assignor", "single-assignor"])
def running_group(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProposalGroup]:
    data_dir: Path = tmp_path_factory.mktemp(request.param)
    with ThreadedBroker() as broker:
        group = ProposalGroup(request.param, broker, data_dir)
        try:
            group.start_members(3)
            yield group
        finally:
            group.close()


@pytest.fixture
def group(running_group: ProposalGroup) -> ProposalGroup:
    """Return the group when its three members share the partitions and have read all records."""
    running_group.start_members(3 - len(running_group.members))
    running_group.wait_until_shared(running_group.members)
    running_group.produce()
    running_group.wait_until_delivered()
    return running_group


def check_each_partition_has_one_reader(group: ProposalGroup) -> None:
    """Check that each of the next records is read once."""
    values = group.produce()
    group.wait_until_delivered()
    assert group.readers(values) == [1] * len(values)


def test_killed_member_is_replaced_and_loses_no_records(group: ProposalGroup) -> None:
    group.end_member(group.members[0])
    group.produce()
    group.wait_until_shared(group.members)
    group.wait_until_delivered()
    check_each_partition_has_one_reader(group)


def test_stopped_member_loses_its_partitions_and_rejoins(group: ProposalGroup) -> None:
    stopped, *others = group.members
    stopped.stop()
    values = group.produce()
    group.wait_until_shared(others)
    group.wait_until_delivered()
    stopped.resume()
    group.wait_until_shared(group.members)
    check_each_partition_has_one_reader(group)
    # Some of them had arrived at the socket of the stopped process.
    assert not set(values) & set(stopped.values), "it read after its session"


def test_member_stopped_while_joining_ignores_a_late_response(
    group: ProposalGroup,
) -> None:
    joining, stopped, leaving = group.members
    stopped.stop()  # the join waits until its session ends
    leaving.process.send_signal(signal.SIGINT)
    group.wait_until_not_reading(joining)
    joining.stop()  # the response to its JoinGroup arrives meanwhile
    group.end_member(leaving)
    group.start_members(1)
    (newest,) = set(group.members) - {joining, stopped}
    group.wait_until_shared([newest])
    group.produce()
    group.wait_until_delivered()
    last, earlier = newest.generation, len(joining.read_generations)
    joining.resume()
    stopped.resume()
    group.wait_until_shared(group.members)
    assert min(joining.read_generations[earlier:]) > last
    check_each_partition_has_one_reader(group)


def test_killed_coordinator_continues_at_committed_offsets(group: ProposalGroup) -> None:
    before = max(each.generation for each in group.members)
    group.end_coordinator()
    group.produce()
    group.start_coordinator()
    group.wait_until_rejoined(before)
    group.wait_until_shared(group.members)
    group.wait_until_delivered()
    check_each_partition_has_one_reader(group)


def test_interrupted_member_commits_and_leaves_at_once(
    group: ProposalGroup,
) -> None:
    leaving = group.members[0]
    values = group.produce()
    group.wait_until_delivered()
    read = [each for each in values if each in leaving.values]
    assert read
    assert group.end_member(leaving, signal.SIGINT) == 0
    group.wait_until_shared(group.members)
    check_each_partition_has_one_reader(group)
    assert group.readers(read) == [0] * len(read), "a committed record was read again"
