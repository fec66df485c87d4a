"""The order of commits when requests fail, get lost, or are cancelled."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from partage.client.group.commit_order import CommitOrder
from partage.model.topic_partition import TopicPartition

A, B, C = (TopicPartition("t", n) for n in range(3))


class User:
    """A task that commits: it sends when it is woken, and again after a retriable error."""

    def __init__(self, world, partitions):
        self.world, self.has_to_look = world, True
        self.commit = world.order.issue(partitions, self.look)
        self.wanted, self.given_up = set(partitions), set()
        self.is_over = False

    def look(self):
        self.has_to_look = True

    def act(self):
        self.has_to_look = False
        if self.commit.undecided:
            if due := self.world.order.sendable(self.commit):
                self.world.send(self, due)
        else:
            self.end()

    def end(self):
        """End the commit: all partitions are decided, or the user stopped waiting."""
        self.given_up |= self.commit.undecided
        self.world.order.close(self.commit)
        self.is_over = True

    @property
    def told(self):
        """The partitions of which this or a later commit is known to be stored."""
        return self.wanted - self.commit.undecided - self.given_up


class World:
    """One consumer's commits and a coordinator with arbitrary failures."""

    def __init__(self):
        self.order, self.users = CommitOrder(), []
        self.on_the_way = {}  # requests in flight, by their sender
        self.stored = dict.fromkeys((A, B, C), -1)  # serial of the stored commit

    def issue(self, partitions):
        self.users.append(User(self, partitions))
        return self.users[-1]

    def send(self, user, due):
        assert not due & set().union(*self.on_the_way.values()), "one of a partition at a time"
        self.order.mark_sent(user.commit, due)
        self.on_the_way[user] = due

    def served(self, user, partitions):
        for partition in partitions & self.on_the_way[user]:
            self.stored[partition] = user.commit.serial

    def answered(self, user, stored=frozenset(), final=frozenset()):
        """Handle the response, or the loss of the connection; the rest is retried."""
        due = self.on_the_way.pop(user)
        self.served_and_told(user, due & stored)
        user.given_up |= due & final & user.commit.undecided
        self.order.mark_failed(user.commit, due & final)
        user.look()

    def served_and_told(self, user, stored):
        for partition in stored:
            self.stored[partition] = user.commit.serial
        self.order.mark_answered(user.commit, stored)

    def cancelled(self, user):
        self.on_the_way.pop(user, None)
        user.end()

    def check(self):
        for user in self.users:
            for partition in user.told:
                assert self.stored[partition] >= user.commit.serial, "it was told stored"


def some(random, partitions=(A, B, C)):
    return {each for each in partitions if random.random() < 0.5}


def step(world, random):
    """Do one random step."""
    ready = [user for user in world.users if user.has_to_look and not user.is_over]
    ready = [user for user in ready if user not in world.on_the_way]
    kinds = ["issue"] + ["act"] * 3 * bool(ready) + ["answer"] * 3 * bool(world.on_the_way)
    open_ = [user for user in world.users if not user.is_over]
    kinds += ["cancel"] * bool(open_)
    kind = random.choice(kinds)
    match kind:
        case "issue":
            world.issue(some(random) or {A})
        case "act":
            random.choice(ready).act()
        case "answer":
            user = random.choice(list(world.on_the_way))
            how = random.choice(["answered", "lost"])
            if how == "lost":  # the coordinator may have stored it
                world.served(user, some(random))
                world.answered(user)
            else:
                stored = some(random)
                world.answered(user, stored, some(random) - stored)
        case "cancel":
            user = random.choice(open_)
            if user in world.on_the_way:
                world.served(user, some(random))
            world.cancelled(user)
    note(f"{kind}: stored {world.stored}, sent {len(world.on_the_way)}")


@given(st.randoms(use_true_random=False), st.integers(1, 60))
@settings(deadline=None, max_examples=300)
def test_stored_commit_is_never_overwritten(random, steps):
    """Once requests no longer fail, all commits end: each one is woken when it may be sent."""
    world = World()
    for _ in range(steps):
        step(world, random)
        world.check()
    while world.on_the_way or any(u.has_to_look and not u.is_over for u in world.users):
        for user in world.users:
            if user in world.on_the_way:
                world.answered(user, stored={A, B, C})
            elif user.has_to_look and not user.is_over:
                user.act()
            world.check()
    assert all(user.is_over for user in world.users), "some users still wait"
    for partition, stored in world.stored.items():
        told = [u.commit.serial for u in world.users if partition in u.told]
        assert stored >= max(told, default=-1)


def test_newest_commit_completes_earlier_ones():
    world = World()
    first = world.issue({A})
    first.act()
    others = [world.issue({A}) for _ in range(100)]
    for user in others:
        user.act()
    assert list(world.on_the_way) == [first], "one at a time"
    world.answered(first, stored={A})
    assert [user.has_to_look for user in others] == [False] * 99 + [True]
    others[-1].act()
    world.answered(others[-1], stored={A})
    assert all(user.told == {A} and user.has_to_look for user in others)
    assert world.order.sendable(world.issue({A}).commit) == {A}


def test_partitions_are_ordered_independently():
    world = World()
    first, second = world.issue({A, B}), world.issue({B, C})
    assert world.order.sendable(first.commit) == {A}
    assert world.order.sendable(second.commit) == {B, C}
    second.act()
    world.answered(second, stored={C}, final={B})
    assert world.order.sendable(first.commit) == {A, B}, "the later one has failed for good"


@pytest.mark.parametrize("count", [2000])
def test_many_commits_have_bounded_wakeups(count):
    """Each commit is woken a bounded number of times, regardless of how many wait."""
    world, looks = World(), Counter()
    commits = [world.order.issue({A}, lambda n=n: looks.update([n])) for n in range(count)]
    for commit in commits[::-1]:
        assert world.order.sendable(commit) == ({A} if commit is commits[-1] else set())
    for commit in reversed(commits[1:]):
        world.order.close(commit)
    assert world.order.sendable(commits[0]) == {A}
    assert sum(looks.values()) <= 3 * count
