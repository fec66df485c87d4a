"""The group assignment as the user's thread sees it between events; nothing is sent here."""

from __future__ import annotations

import asyncio
import re

import pytest

from partage.assignors import CooperativeSticky
from partage.bridge.consumer_protocol import ConsumerProtocol
from partage.client.cluster import Cluster
from partage.client.consumer.group_assignment import GroupAssignment
from partage.client.group.driver import now_ms
from partage.member import events, outcome
from partage.member.settings import MemberSettings
from partage.model.topic_partition import TopicPartition

MINE = ("t", 0)


class Held:
    """An assignment target; it records the user's view when partitions are removed."""

    def __init__(self):
        self.owned, self.seen = set(), []

    def add_partitions(self, partitions, topic_ids=()):
        self.owned |= set(partitions)

    def remove_partitions(self, partitions):
        self.seen += [(self.owner.has_left, self.owner.may_deliver(p)) for p in partitions]
        self.owned -= set(partitions)

    def assignment(self):
        return sorted(self.owned)

    def is_empty(self):
        return not self.owned

    def positions(self):
        return {}

    def wake(self):
        pass


class Scripted:
    """A stand-in for the driver: it performs actions and records requests."""

    def __init__(self, owner):
        self.owner, self.asked = owner, {}
        self.core = owner._member

    def handle(self, event):
        for action in self.core.handle(event).actions:
            self.asked[type(action)] = getattr(action, "serial", None)
            if isinstance(
                action,
                outcome.CallListener
                | outcome.LeftGroup
                | outcome.ReportProblem
                | outcome.ReportFatalError,
            ):
                self.owner._perform(action)
        self.owner._on_event_handled()

    def hear(self, event, to=None, **fields):
        serial = {} if to is None else {"serial": self.asked.pop(to)}
        self.handle(event(at_ms=now_ms(), **serial, **fields))

    def joins(self, generation, *partitions):
        """Run the steps from a join to a decoded assignment."""
        self.hear(
            events.JoinPrepared,
            outcome.EncodeSubscription,
            protocols=(events.SupportedProtocol("cooperative-sticky", b""),),
        )
        self.hear(
            events.JoinResponseReceived,
            outcome.SendJoin,
            member_id="a",
            generation=generation,
            protocol="cooperative-sticky",
            leader="b",
        )
        self.hear(events.SyncResponseReceived, outcome.SendSync)
        self.hear(events.AssignmentDecoded, outcome.DecodeAssignment, partitions=partitions)

    async def tended(self):
        """Run due callbacks, as the user's thread does."""
        while (call := self.owner.due_callback) is not None:
            self.owner.callback_done(call)
        await asyncio.sleep(0)


async def member(topics=frozenset({"t"}), pattern=None):
    """Return an assignment that owns a partition."""
    held = Held()
    settings = MemberSettings(group_id="g", protocol_type="consumer")
    cluster = Cluster("localhost:1")
    owner = held.owner = GroupAssignment(
        cluster, held, settings, ConsumerProtocol([CooperativeSticky()])
    )
    owner._watcher.start = lambda: None  # there are no topics to watch
    script = owner._driver = Scripted(owner)
    await owner.subscribe(topics, pattern)
    if pattern is not None:
        owner._topics_changed(frozenset({"t"}))
    script.hear(events.CoordinatorFound, outcome.FindCoordinator)
    script.joins(1, MINE)
    await script.tended()
    assert held.owned == {MINE}
    assert owner.may_deliver(TopicPartition(*MINE))
    return script, owner, held


async def drained(owner):
    owner.drain("going")
    await asyncio.sleep(0)


class Late:
    """A callback that completes while the next one is published."""

    def __init__(self, call, meanwhile):
        self._call, self._meanwhile = call, meanwhile

    @property
    def serial(self):
        self._meanwhile()
        self._meanwhile = lambda: None
        return self._call.serial


def test_callback_replacing_running_one_is_not_lost():
    async def play():
        script, owner, _ = await member()
        script.hear(events.RejoinRequested, reason="for fun")
        script.joins(2, MINE)
        call = owner.due_callback
        assert call.partitions == ()
        script.hear(events.RejoinRequested, reason="for more fun")
        owner.callback_done(Late(call, lambda: script.joins(3)))
        assert owner.due_callback.callback is outcome.ListenerCallback.REVOKED
        await script.tended()
        assert owner.due_callback.callback is outcome.ListenerCallback.ASSIGNED

    asyncio.run(play())


def test_partitions_are_removed_when_member_has_left():
    """The leave completes at once if there is no coordinator to notify."""

    async def play():
        script, owner, held = await member()
        await drained(owner)
        script.joins(2, MINE)
        script.hear(events.CoordinatorLost, serial=script.core.membership.link.coordinator_serial)
        await script.tended()
        assert owner.has_left
        assert held.seen == [(False, False)]

    asyncio.run(play())


@pytest.mark.parametrize("pattern", [None, re.compile("t.*")])
def test_subscribe_during_leave_rejoins(pattern):
    async def play():
        script, owner, _ = await member()
        await drained(owner)
        script.joins(2, MINE)
        await script.tended()
        await owner.subscribe(frozenset({"t"}) if pattern is None else frozenset(), pattern)
        script.hear(events.LeaveResponseReceived, outcome.SendLeave)
        assert not owner.has_left
        if pattern is not None:
            owner._topics_changed(frozenset({"t"}))
        script.joins(3, MINE)
        assert not owner.may_deliver(TopicPartition(*MINE)), "the listener has yet to hear of it"
        await script.tended()
        assert owner.may_deliver(TopicPartition(*MINE))
        await owner.leave("enough")
        await script.tended()
        script.hear(events.LeaveResponseReceived, outcome.SendLeave)
        assert owner.has_left

    asyncio.run(play())


@pytest.mark.parametrize("is_first", [False, True])
def test_pattern_match_during_drain_does_not_end_it(is_first):
    """Neither changed matches nor the first matches end a drain."""

    async def play():
        pattern = re.compile(".*")
        script, owner, _ = await member(frozenset(), pattern)
        if is_first:
            await owner.subscribe(frozenset(), pattern)
        await drained(owner)
        owner._topics_changed(frozenset({"t", "u"}))
        script.joins(2, MINE)
        await script.tended()
        owner._topics_changed(frozenset({"t", "u", "v"}))
        script.hear(events.LeaveResponseReceived, outcome.SendLeave)
        assert owner.has_left

    asyncio.run(play())
