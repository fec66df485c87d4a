"""Leader election: one member is active, and tokens increase."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from client.group_admin import remove_member
from partage import Membership
from partage.client.group.driver import now_ms
from partage.client.loop_thread import LoopThread
from partage.errors import MemberFailedError, NotAMemberError
from partage.recipes import LeaderElection
from partage.recipes.election import PROTOCOL_TYPE
from partage.recipes.elector import elect
from polled_conditions import eventually_async

from .settings import QUICK, run


@pytest.fixture
def servers(partage_broker):
    return partage_broker.bootstrap_servers


class Work:
    """Records which members work; two at the same time are an error."""

    def __init__(self):
        self.at_work = None
        self.tokens = []
        self.overlaps = []

    async def __call__(self, term):
        if self.at_work is not None:
            self.overlaps.append((self.at_work, term.token))
        self.at_work = term.token
        self.tokens.append(term.token)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)  # longer than a request, so that an overlap is noticed
            self.at_work = None


def election(servers, identity, work=None, **options):
    return LeaderElection(servers, "scheduler", identity, work=work, **{**QUICK, **options})


def test_one_leader_is_known_to_all(servers):
    async def main():
        async with election(servers, "a") as one, election(servers, "b") as two:
            leader = await one.wait_for_leader()
            await eventually_async(
                lambda: one.leader == two.leader is not None and (one.term or two.term)
            )
            active, other = (one, two) if one.is_leader else (two, one)
            assert active.is_leader
            assert not other.is_leader
            assert active.term.token == one.leader.token >= leader.token
            assert one.leader.identity == ("a" if active is one else "b")

    run(main())


def test_next_leader_starts_after_work_stopped(servers):
    work = Work()

    async def main():
        async with election(servers, "a", work) as one:
            first = await one.wait_until_elected()
            async with election(servers, "b", work) as two:
                await two.wait_for_leader()
                await one.close()
                assert not first.is_active
                second = await two.wait_until_elected()
                await eventually_async(lambda: len(work.tokens) == 2)
                assert second.token > first.token
        assert work.at_work is None

    run(main())
    assert work.tokens == sorted(set(work.tokens))
    assert not work.overlaps


def test_rolling_restart_elects_once(servers):
    """In the same situation, schema registries elect twice for each restarted pod."""
    work = Work()

    async def main():
        elections = {name: election(servers, name, work) for name in "abc"}
        await elections["a"].membership.start()
        await elections["a"].wait_until_elected()
        for name in "bc":
            await elections[name].membership.start()
            await elections[name].wait_for_leader()
        for name in "cb":  # not active, so no election
            await elections[name].close()
            elections[name] = election(servers, name, work)
            await elections[name].membership.start()
            await elections[name].wait_for_leader()
        assert len(work.tokens) == 1
        await elections["a"].close()
        await eventually_async(lambda: len(work.tokens) == 2)
        elections["a"] = election(servers, "a", work)
        await elections["a"].membership.start()
        await elections["a"].wait_for_leader()
        for each in elections.values():
            assert len(work.tokens) == 2
            if not each.is_leader:
                await each.close()
        for each in elections.values():
            await each.close()

    run(main())
    assert not work.overlaps


def test_cancelled_resign_still_ends_term(servers):
    may_stop = asyncio.Event()

    async def reluctant(term):
        try:
            await asyncio.Event().wait()
        finally:
            await may_stop.wait()

    async def main():
        async with election(servers, "a", reluctant) as one:
            first = await one.wait_until_elected()
            async with election(servers, "b") as two:
                await two.wait_for_leader()
                resigning = asyncio.create_task(one.resign())
                await first.wait_ended()
                resigning.cancel()
                await asyncio.wait({resigning})
                assert resigning.cancelled()
                may_stop.set()
                assert (await two.wait_until_elected()).token > first.token

    run(main())


def test_resign_from_work_ends_term(servers):
    async def main():
        are_two = asyncio.Event()

        async def resigns(term):
            await are_two.wait()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(one.resign())
                tasks.create_task(asyncio.Event().wait())

        async with election(servers, "a", resigns) as one:
            first = await one.wait_until_elected()
            async with election(servers, "b") as two:
                await two.wait_for_leader()
                are_two.set()
                assert (await two.wait_until_elected()).token > first.token

    run(main())


def test_stale_member_id_alone_is_reelected(servers):
    """In the same situation, a schema registry has no leader although it is alone."""
    work = Work()

    async def main():
        async with election(servers, "a", work) as one:
            first = await one.wait_until_elected()
            await remove_member(servers, "scheduler", one.membership.member_id)
            await first.wait_ended()
            second = await one.wait_until_elected()
            assert second.token > first.token
            assert (await one.wait_for_leader()).token == second.token

    run(main())
    assert not work.overlaps


def test_suspended_leader_is_not_active(servers):
    """Its event loop is frozen: it receives nothing, but its clock advances."""
    short = {"session_timeout_ms": 1000}
    frozen, thaw, thread = threading.Event(), threading.Event(), LoopThread()

    def freeze():
        frozen.set()
        thaw.wait(20)

    async def first():
        one = election(servers, "a", **short)
        await one.membership.start()
        term = await one.wait_until_elected()
        asyncio.get_running_loop().call_later(0.02, freeze)  # once this has returned
        return one, term

    async def main():
        one, term = await asyncio.wrap_future(thread.submit(first()))
        await asyncio.to_thread(frozen.wait)
        surely_until_ms = one.membership.exclusive_until_ms
        assert not term.has_ended
        async with election(servers, "b", **short) as two:
            second = await two.wait_until_elected()
            assert not term.is_active
            assert now_ms() >= surely_until_ms
            assert second.is_active
            assert second.token > term.token
            thaw.set()
            await asyncio.wrap_future(thread.submit(term.wait_ended()))
            await asyncio.wrap_future(thread.submit(one.close()))
            assert second.is_active

    try:
        run(main())
    finally:
        thaw.set()
    thread.stop()


def test_silent_coordinator_stops_work_in_time(partage_broker_process):
    servers, work = partage_broker_process.bootstrap_servers, Work()

    async def main():
        short = {"session_timeout_ms": 1500, "stop_ms": 1000}
        async with election(servers, "a", work, **short) as one:
            first = await one.wait_until_elected()
            await asyncio.to_thread(partage_broker_process.kill)
            sure_ms = one.membership.exclusive_until_ms
            await eventually_async(lambda: work.at_work is None)
            assert now_ms() < sure_ms
            assert not first.is_active
            await asyncio.to_thread(partage_broker_process.start)
            assert (await one.wait_until_elected()).token > first.token

    run(main())
    assert not work.overlaps


def test_restart_after_crash_does_not_block_election(servers):
    """A member that crashed is still in the group when it returns with another member id."""

    async def main():
        short = {"session_timeout_ms": 300}
        crashed = election(servers, "a", **short)
        await crashed.membership.start()
        first = await crashed.wait_until_elected()
        crashed.membership._driver.close()  # as the coordinator sees it
        async with election(servers, "a", **short) as again:
            second = await again.wait_until_elected()
            assert second.token > first.token
            assert not first.is_active
        await crashed.membership.close(timeout_ms=1)

    run(main())


def test_term_starts_only_with_valid_lease(servers):
    """The assignment takes longer than a session: earlier requests no longer prove the lease."""

    def slowly(meeting):
        time.sleep(0.5 if len(meeting.members) > 1 else 0)
        return elect(meeting)

    async def main():
        slow = Membership(
            servers, "scheduler", PROTOCOL_TYPE, {"stands": False}, assign=slowly, **QUICK
        )
        async with slow:
            assert (await slow.assignment()).is_leader
            async with election(servers, "a", session_timeout_ms=400) as one:
                term = await one.wait_until_elected()
                assert term.is_active
                assert (await one.wait_for_leader()).token == term.token

    run(main())


def test_resigned_member_is_not_elected_until_stand(servers):
    work = Work()

    async def main():
        async with election(servers, "a", work) as one:
            first = await one.wait_until_elected()
            await one.resign()
            assert work.at_work is None
            assert not one.is_leader
            assert not first.is_active
            await eventually_async(lambda: one.leader is None)
            one.stand()
            assert (await one.wait_until_elected()).token > first.token

    run(main())


def test_non_candidate_only_observes(servers):
    async def main():
        async with (
            election(servers, "a", stands=False, priority=9) as watcher,
            election(servers, "b") as one,
        ):
            await one.wait_until_elected()
            assert (await watcher.wait_for_leader()).identity == "b"
            assert not watcher.is_leader

    run(main())


@pytest.mark.parametrize("fails", [True, False])
def test_end_of_work_ends_term(servers, fails):
    tokens = []

    async def work(term):
        tokens.append(term.token)
        if fails:
            raise LookupError("mine")

    async def main():
        async with election(servers, "a", work) as one:
            await eventually_async(lambda: tokens)
            async with election(servers, "b") as two:
                term = await two.wait_until_elected()
                assert [term.token] > tokens
                assert (await one.wait_for_leader()).token == term.token
                assert isinstance(one.failure, LookupError) is fails
                assert len(tokens) == 1

    run(main())


def test_fatal_error_is_raised(servers):
    async def main():
        async with election(servers, "a", session_timeout_ms=2**31 - 1) as one:
            with pytest.raises(MemberFailedError, match="INVALID_SESSION_TIMEOUT"):
                await one.wait_until_elected()
        with pytest.raises(NotAMemberError):
            await one.wait_until_elected()

    run(main())


def test_invalid_arguments_raise(servers):
    with pytest.raises(TypeError, match="group_instance_id"):
        election(servers, "a", group_instance_id="x")
    with pytest.raises(ValueError, match="stop_ms=2990 leaves 10 ms"):
        election(servers, "a", stop_ms=2990)
    with pytest.raises(TypeError, match=r"priority=1\.5: expected an integer"):
        election(servers, "a", priority=1.5)
