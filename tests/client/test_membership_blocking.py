"""Memberships without asyncio: on a thread of their own, which ends with them."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from partage.client.loop_thread import CalledFromLoop
from partage.client.membership import MembershipListener, NotAMember
from partage.sync import Membership

from .test_membership import QUICK

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def servers(partage_broker):
    return partage_broker.bootstrap_servers


def test_without_asyncio(servers):
    one = Membership(servers, "crew", "crew", 1, **QUICK)
    with one:
        first = one.standing()
        assert first == one.current
        assert list(first.state) == [one.member_id]
        assert one.surely_until_ms is not None
        with pytest.raises(TimeoutError):
            one.standing(after=first.generation, timeout_ms=10)
        one.update(2)
        second = one.standing(after=first.generation)
        assert second.state == {one.member_id: 2}
        one.rejoin("for a test")
        one.standing(after=second.generation)
    one.close()
    with pytest.raises(NotAMember):
        one.standing()
    with pytest.raises(NotAMember):
        one.update(3)


def test_a_listener_cannot_close_the_membership_that_calls_it(servers):
    """It would wait for itself; and the membership goes on."""
    refused = []

    class Closing(MembershipListener):
        def on_assigned(self, standing):
            try:
                made.wait(30)
                members[0].close()
            except CalledFromLoop as error:
                refused.append(error)

    made, members = threading.Event(), []
    members.append(Membership(servers, "crew", "crew", 1, listener=Closing(), **QUICK))
    with members[0] as one:
        made.set()
        first = one.standing()
        one.rejoin("for a test")
        one.standing(after=first.generation)
    assert refused
    assert not one._thread._thread.is_alive()


def test_an_interrupt_while_it_leaves_ends_its_thread_all_the_same(servers):
    class Interrupting(MembershipListener):
        async def on_leaving(self, standing):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.Event().wait()  # never

    one = Membership(servers, "crew", "crew", 1, listener=Interrupting(), **QUICK)
    one.standing()
    with pytest.raises(KeyboardInterrupt):
        one.close()
    assert not one._thread._thread.is_alive()
