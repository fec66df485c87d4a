"""Membership without asyncio, on a thread that ends with it."""

from __future__ import annotations

import asyncio
import signal
import threading

import pytest

from partage.errors import CalledFromLoopError, NotAMemberError
from partage.sync import Membership, MembershipListener

from .test_membership import QUICK

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def servers(partage_broker):
    return partage_broker.bootstrap_servers


def test_membership_without_asyncio(servers):
    one = Membership(servers, "crew", "crew", 1, **QUICK)
    with one:
        first = one.assignment()
        assert first == one.current_assignment
        assert list(first.state) == [one.member_id]
        assert one.exclusive_until_ms is not None
        with pytest.raises(TimeoutError):
            one.assignment(after=first.generation, timeout_ms=10)
        one.update(2)
        assert one.metadata == 2
        second = one.assignment(after=first.generation)
        assert second.state == {one.member_id: 2}
        one.rejoin("for a test")
        one.assignment(after=second.generation)
    one.close()
    with pytest.raises(NotAMemberError):
        one.assignment()
    with pytest.raises(NotAMemberError):
        one.update(3)


def test_close_in_listener_raises(servers):
    """It would be a deadlock; the membership continues."""
    refused = []

    class Closing(MembershipListener):
        def on_assigned(self, assignment):
            try:
                made.wait(30)
                members[0].close()
            except CalledFromLoopError as error:
                refused.append(error)

    made, members = threading.Event(), []
    members.append(Membership(servers, "crew", "crew", 1, listener=Closing(), **QUICK))
    with members[0] as one:
        made.set()
        first = one.assignment()
        one.rejoin("for a test")
        one.assignment(after=first.generation)
    assert refused
    assert not one._thread._thread.is_alive()


@pytest.fixture
def single_interrupt():
    """Raise KeyboardInterrupt at the first SIGINT, and ignore all later ones."""
    signals = []

    def on_interrupt(number, frame):
        signals.append(number)
        if len(signals) == 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_interrupt)
    yield
    signal.signal(signal.SIGINT, before)


def test_interrupt_during_close_stops_thread(servers, single_interrupt):
    class Interrupting(MembershipListener):
        async def on_leaving(self, assignment):
            # A signal just before the main thread blocks does not wake it: send more of them
            while True:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                await asyncio.sleep(0.01)

    one = Membership(servers, "crew", "crew", 1, listener=Interrupting(), **QUICK)
    one.assignment()
    with pytest.raises(KeyboardInterrupt):
        one.close()
    assert not one._thread._thread.is_alive()
