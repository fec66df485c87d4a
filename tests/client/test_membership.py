"""Members of groups without partitions: assignments, callbacks and errors."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from partage import Membership, MembershipListener
from partage.errors import (
    AssignmentFailedError,
    ClientError,
    MemberFailedError,
    NotAMemberError,
)

from .group_admin import remove_member

QUICK = {
    "heartbeat_interval_ms": 30,
    "session_timeout_ms": 3_000,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
}


@pytest.fixture
def servers(partage_broker):
    return partage_broker.bootstrap_servers


def run(work):
    async def limited():
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(limited())


def member(servers, metadata, group_id="crew", protocol_type="crew", **options):
    return Membership(servers, group_id, protocol_type, metadata, **{**QUICK, **options})


async def first_assignment(a_member, fits):
    """Return the first assignment whose state satisfies ``fits``."""
    async for assignment in a_member.assignments():
        if fits(assignment.state):
            return assignment
    raise AssertionError("the assignments ended")


def has(count):
    return lambda state: len(state) == count


class Told(MembershipListener):
    def __init__(self):
        self.calls = []

    async def on_rejoining(self, assignment):
        self.calls.append("rejoining")

    def on_assigned(self, assignment):
        self.calls.append(f"assigned {assignment.state}")

    async def on_leaving(self, assignment):
        self.calls.append("leaving")

    def on_lost(self, reason):
        self.calls.append("lost")


def test_every_member_gets_all_metadata_by_default(servers):
    async def main():
        async with member(servers, {"url": "a"}) as one, member(servers, {"url": "b"}) as two:
            first = await first_assignment(one, has(2))
            second = await first_assignment(two, has(2))
            assert first.generation == second.generation
            assert first.state == second.state
            assert first.state == {one.member_id: {"url": "a"}, two.member_id: {"url": "b"}}
            assert {first.is_leader, second.is_leader} == {True, False}
            await two.close()
            assert (await first_assignment(one, has(1))).state == {one.member_id: {"url": "a"}}

    run(main())


def test_leader_assigns_bytes_to_each_member(servers):
    def assign(meeting):
        assert meeting.leader in {peer.member_id for peer in meeting.members}
        return {p.member_id: p.metadata + b"/%d" % len(meeting.members) for p in meeting.members}

    async def main():
        async with (
            member(servers, b"\xff", assign=assign) as one,
            member(servers, b"\xfe", assign=assign) as two,
        ):
            await first_assignment(one, lambda state: state == b"\xff/2")
            await first_assignment(two, lambda state: state == b"\xfe/2")

    run(main())


def test_member_without_assignment_has_empty_state(servers):
    async def main():
        async with member(servers, {}, assign=lambda meeting: {}) as one:
            assert (await one.assignment()).state is None

    run(main())


def test_updated_metadata_reaches_all_members(servers):
    async def main():
        async with member(servers, 1) as one, member(servers, 2) as two:
            await first_assignment(one, has(2))
            two.update(3)
            told = await first_assignment(one, lambda state: sorted(state.values()) == [1, 3])
            assert told.state[two.member_id] == 3

    run(main())


def test_update_without_rejoin_waits_for_next_rebalance(servers):
    async def main():
        async with member(servers, 1) as one:
            first = await one.assignment()
            one.update(2, rejoins=False)
            assert one.current_assignment is first
            one.rejoin("for a test")
            assert list((await one.assignment(after=first.generation)).state.values()) == [2]

    run(main())


def test_listener_is_called_in_order(servers):
    told = Told()

    async def main():
        async with member(servers, 1, assign=lambda meeting: {}, listener=told) as one:
            first = await one.assignment()
            one.rejoin("for a test")
            await one.assignment(after=first.generation)

    run(main())
    # Twice at first: the coordinator assigns a member id, with which the member rejoins.
    once = ["rejoining", "assigned None"]
    assert told.calls == ["rejoining", *once, *once, "leaving"]


def test_listener_exception_is_logged(servers, caplog):
    class Broken(MembershipListener):
        def on_assigned(self, assignment):
            raise LookupError("mine")

    async def main():
        async with member(servers, 1, listener=Broken()) as one:
            await one.assignment()

    run(main())
    assert "LookupError: mine" in caplog.text


@pytest.mark.parametrize(
    ("assign", "story"),
    [
        (lambda meeting: 1 / 0, "ZeroDivisionError"),
        (lambda meeting: {"nobody": 1}, "unknown members"),
        (lambda meeting: [1], "not a mapping of member ids"),
        (lambda meeting: {meeting.leader: object()}, "not JSON serializable"),
    ],
)
def test_assign_failure_reaches_members(servers, assign, story):
    async def main():
        async with member(servers, 1, assign=assign) as one:
            with pytest.raises(AssignmentFailedError, match=story):
                await one.assignment()

    run(main())


def test_last_unread_failure_is_raised(servers):
    tried = []

    def assign(meeting):
        tried.append(len(tried) + 1)
        if len(tried) <= 3:
            raise LookupError(f"try {len(tried)}")
        return {}

    async def main():
        came = asyncio.Event()

        class Here(MembershipListener):
            def on_assigned(self, assignment):
                came.set()

        async with member(servers, 1, assign=assign, listener=Here()) as one:
            await came.wait()
            with pytest.raises(AssignmentFailedError, match="try 3"):
                await one.assignment()
            assert (await one.assignment()).state is None

    run(main())


def test_unreachable_coordinator_is_logged_once(caplog):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nobody = "{}:{}".format(*gone.getsockname())

    async def main():
        async with member(nobody, 1) as one:
            for _ in range(3):
                with pytest.raises(ClientError, match="refused"):
                    await one.assignment()

    run(main())
    (told,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert told.getMessage().startswith("coordinator is unreachable: group=crew ")


REASON = "ValueError: no rack for h\u00f6st"


@pytest.mark.parametrize(
    ("metadata", "said"),
    [(1, b'"partage: no assignment: ValueError: no rack for h\\u00f6st"'), (b"1", None)],
    ids=["json", "bytes"],
)
def test_assign_failure_without_coordinator_support(servers, metadata, said):
    """Each member gets an assignment that carries the error, as from our leader on Apache Kafka."""
    told, is_mended = Told(), []

    def assign(meeting):
        state = b'"here"' if is_mended else said or f"partage: no assignment: {REASON}".encode()
        states = {peer.member_id: state for peer in meeting.members}
        return states | {meeting.leader: b""}

    async def main():
        async with member(servers, b"0", assign=assign) as leader:
            await leader.assignment()
            async with member(servers, metadata, assign=lambda m: {}, listener=told) as other:
                with pytest.raises(AssignmentFailedError, match=REASON):
                    await other.assignment()
                is_mended.append(True)
                leader.rejoin("mended")
                assignment = None
                while assignment is None:
                    with contextlib.suppress(AssignmentFailedError):
                        assignment = await other.assignment()
                assert assignment.state == ("here" if metadata == 1 else b'"here"')

    run(main())
    given = {call for call in told.calls if call.startswith("assigned")}
    assert len(given) == 1, "an error is not reported as a state"


def test_undecodable_metadata_names_the_member(servers):
    async def main():
        async with member(servers, 1) as one:
            await one.assignment()
            async with member(servers, b"\xff", assign=lambda meeting: {}) as other:
                with pytest.raises(
                    AssignmentFailedError, match=r"the metadata of .* is not valid JSON"
                ):
                    await first_assignment(one, has(2))
                with pytest.raises(AssignmentFailedError, match=other.member_id):
                    await other.assignment()

    run(main())


def test_other_protocol_type_is_rejected(servers, caplog):
    async def main():
        async with member(servers, 1) as one:
            await one.assignment()
            async with member(servers, 2, protocol_type="cooks") as two:
                with pytest.raises(MemberFailedError, match="INCONSISTENT_GROUP_PROTOCOL"):
                    await two.assignment()

    run(main())
    (told,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "group 'crew': INCONSISTENT_GROUP_PROTOCOL" in told.getMessage()


def test_member_unknown_to_coordinator_rejoins(servers):
    """A single member with a stale member id joins again and does not hang."""
    told = Told()

    async def main():
        async with member(servers, 1, assign=lambda m: {}, listener=told) as one:
            first = await one.assignment()
            await remove_member(servers, "crew", first.member_id)
            second = await one.assignment(after=first.generation)
            assert second.member_id != first.member_id
            assert second.is_leader

    run(main())
    assert "lost" in told.calls


def test_closed_membership_raises(servers):
    async def main():
        one = member(servers, 1)
        with pytest.raises(NotAMemberError):
            await one.assignment()
        async with one:
            await one.assignment()
        with pytest.raises(NotAMemberError):
            one.rejoin("for a test")
        await one.close()

    run(main())


def test_unknown_options_are_rejected(servers):
    with pytest.raises(TypeError, match="did you mean 'session_timeout_ms'"):
        Membership(servers, "crew", "crew", 1, sesion_timeout_ms=1)
    with pytest.raises(TypeError, match="no option 'max_poll_records'"):
        Membership(servers, "crew", "crew", 1, max_poll_records=1)
    with pytest.raises(TypeError, match="expected bytes"):
        Membership(servers, "crew", "crew", b"1", assign=lambda meeting: {}).update("text")
    with pytest.raises(TypeError, match="needs an assign"):
        Membership(servers, "crew", "crew", b"1")


def test_close_in_listener_raises(servers):
    refused = []

    class Closing(MembershipListener):
        async def on_assigned(self, assignment):
            try:
                await members[0].close()
            except RuntimeError as error:
                refused.append(str(error))

    members = []

    async def main():
        members.append(member(servers, 1, listener=Closing()))
        async with members[0] as one:
            first = await one.assignment()
            one.rejoin("for a test")
            await one.assignment(after=first.generation)

    run(main())
    assert refused == ["close() waits for the listener, so a listener must not await it"] * 2
