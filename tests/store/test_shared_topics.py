"""Topics on which several brokers agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from partage.store.memory import MemoryZooKeeper, lose_transactions
from partage.store.zk_schema import AppliedDoc, ForeignDataError, TopicDoc
from partage.store.zookeeper import Create, InDoubtError, Operation

from .zk_fixture import PATHS, BrokerStores, made, nothing, run


def test_created_topic_visible_to_all_brokers() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        heard: list[int] = []
        await two.topics.refresh(lambda: heard.append(1))
        await one.topics.refresh(nothing)
        assert await one.topics.put("t", made("aa", 1, 2, 1), "n1")
        assert heard == [1]
        await two.topics.refresh(nothing)
        assert two.topics.topics == {"t": TopicDoc(id="aa", brokers=(1, 2, 1))}
        assert two.topics.version == one.topics.version
        assert two.topics.partition_counts() == {1: 2, 2: 1}

    run(scenario())


def test_refresh_reads_changed_topics_only() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await one.topics.refresh(nothing)
        for number in range(150):
            await one.topics.put(f"t{number}", made("aa", 1), f"n{number}")
        await two.topics.refresh(nothing)
        await one.topics.put("t7", made("bb", 1), "late")
        await one.topics.delete("t8", "later")
        read: list[object] = []

        async def note(what: Sequence[Operation] | str) -> None:
            read.append(what)

        two.session.before = note
        await two.topics.refresh(nothing)
        assert read == [PATHS.topics, PATHS.topic("t7"), PATHS.topic("t8")]
        assert two.topics.topics == one.topics.topics

    run(scenario())


def test_refresh_after_many_changes_reads_all() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await one.topics.refresh(nothing)
        await one.topics.put("first", made("aa", 1), "n")
        await two.topics.refresh(nothing)
        await one.topics.delete("first", "m")
        for number in range(150):
            await one.topics.put(f"t{number}", made("aa", 1), f"n{number}")
        await two.topics.refresh(nothing)
        assert two.topics.topics == one.topics.topics

    run(scenario())


def test_decision_sees_earlier_changes() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await one.topics.refresh(nothing)
        await two.topics.refresh(nothing)
        await one.topics.put("t", made("aa", 1), "n1")
        seen: list[list[str]] = []

        def decide(topics: Mapping[str, TopicDoc]) -> TopicDoc | None:
            seen.append(sorted(topics))
            return None if "t" in topics else TopicDoc(id="bb", brokers=(2,))

        assert not await two.topics.put("t", decide, "n2")
        assert seen == [[], ["t"], ["t"]]  # a refusal is decided by the latest topics
        assert two.topics.topics["t"].id == "aa"

    run(scenario())


def test_refusal_sees_earlier_deletions_and_creations() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await one.topics.put("former", made("aa", 1), "n1")
        await two.topics.refresh(nothing)
        await one.topics.delete("former", "n2")
        await one.topics.release_names()
        await one.topics.put("new", made("bb", 1), "n3")

        def decide(topics: Mapping[str, TopicDoc]) -> TopicDoc | None:
            return None if "former" in topics else TopicDoc(id="cc", brokers=(2,))

        assert await two.topics.put("other", decide, "n4")
        assert two.topics.topics.keys() == {"new", "other"}
        assert await one.topics.delete("other", "n5")

    run(scenario())


def test_decision_before_first_refresh_sees_changes() -> None:
    """For example after a lost session, if a client changes topics before they are read again."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two, three = [await BrokerStores(zoo, number).register() for number in (1, 2, 3)]
        await one.topics.put("t", made("aa", 1), "n1")
        seen: list[list[str]] = []

        def decide(topics: Mapping[str, TopicDoc]) -> TopicDoc:
            seen.append(sorted(topics))
            return TopicDoc(id="bb", brokers=(2,))

        assert await two.topics.put("u", decide, "n2")
        assert seen == [["t"]]
        assert two.topics.version == 2
        assert await three.topics.delete("t", "n3")
        assert sorted(three.topics.topics) == ["u"]

    run(scenario())


def test_deletion_leaves_tombstone_for_each_broker() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await one.topics.refresh(nothing)
        await one.topics.put("t", made("aa", 1, 1, 3), "n1")
        assert await one.topics.delete("t", "n2")
        assert not await one.topics.delete("t", "n3")
        assert await one.topics.tombstones() == ["aa"]
        assert await two.topics.tombstones() == []
        await one.topics.remove_tombstone("aa")
        await one.topics.remove_tombstone("aa")
        assert await one.topics.tombstones() == []
        assert await one.session.children(PATHS.tombstones) == ["aa.3", "aa.groups"]

    run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("count", [1, 2])
def test_changes_in_doubt(when: str, count: int) -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await one.topics.refresh(nothing)
        setattr(one.session, when, lose_transactions(count))
        assert await one.topics.put("t", made("aa", 1), "n1")
        setattr(one.session, when, lose_transactions(count))
        assert await one.topics.put("t", made("aa", 1, 2), "n2")
        setattr(one.session, when, lose_transactions(count))
        assert await one.topics.delete("t", "n3")
        await two.topics.refresh(nothing)
        assert two.topics.topics == {}
        assert two.topics.version == one.topics.version

    run(scenario())


def test_change_in_doubt_followed_by_another_succeeds() -> None:
    """The reply is lost, and another broker changes a topic before the retry."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await two.topics.refresh(nothing)
        number = 0

        async def overtaken(what: Sequence[Operation] | str) -> None:
            nonlocal number
            if not isinstance(what, str):
                number += 1
                one.session.after = nobody
                await two.topics.put(f"other{number}", made("ff", 2), f"two's {number}")
                raise InDoubtError("the connection was lost")

        nobody = one.session.after
        decided = 0

        def decide(topics: Mapping[str, TopicDoc]) -> TopicDoc | None:
            nonlocal decided
            decided += 1
            return None if "t" in topics else TopicDoc(id="aa", brokers=(1,))

        one.session.after = overtaken
        assert await one.topics.put("t", decide, "n1")
        assert decided == 1
        one.session.after = overtaken
        assert await one.topics.put("t", made("aa", 1, 2), "n2")
        one.session.after = overtaken
        assert await one.topics.delete("t", "n3")
        assert number == 3
        await one.topics.refresh(nothing)
        assert sorted(one.topics.topics) == ["other1", "other2", "other3"]

    run(scenario())


def test_is_applied_by_reports_progress() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await one.topics.refresh(nothing)
        await one.topics.put("t", made("aa", 1), "n1")
        await one.topics.publish_applied(AppliedDoc(value=one.topics.version))
        version = one.topics.version
        assert await one.topics.is_applied_by([1], version)
        assert not await one.topics.is_applied_by([1, 2], version)
        await two.topics.refresh(nothing)
        await two.topics.publish_applied(AppliedDoc(value=two.topics.version))
        assert await one.topics.is_applied_by([1, 2], version)
        zoo.expire(two.session)
        assert not await one.topics.is_applied_by([1, 2], version)

    run(scenario())


def test_applied_survives_end_of_earlier_session() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        await one.topics.refresh(nothing)
        await one.topics.publish_applied(AppliedDoc(value=one.topics.version))
        again = await BrokerStores(zoo, 1).register()
        await again.topics.refresh(nothing)
        await again.topics.publish_applied(AppliedDoc(value=again.topics.version))
        zoo.expire(one.session)
        assert await again.topics.is_applied_by([1], again.topics.version)

    run(scenario())


def test_slow_refresh_does_not_restore_old_topics() -> None:
    """Two refreshes of one broker run concurrently; the one that began first ends last."""

    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one, two = await BrokerStores(zoo, 1).register(), await BrokerStores(zoo, 2).register()
        await one.topics.refresh(nothing)
        await two.topics.refresh(nothing)
        await one.topics.put("t", made("aa", 1), "n1")
        is_first = True

        async def overtaken(what: Sequence[Operation] | str) -> None:
            nonlocal is_first
            if what == PATHS.topic("t") and is_first:
                is_first = False
                await one.topics.put("t", made("bb", 1), "n2")
                await two.topics.refresh(nothing)
                assert two.topics.topics["t"].id == "bb"

        two.session.after = overtaken
        await two.topics.refresh(nothing)
        assert two.topics.topics["t"].id == "bb"
        assert two.topics.version == one.topics.version

    run(scenario())


def test_change_read_before_its_reply_counted_once() -> None:
    async def scenario() -> None:
        zoo = MemoryZooKeeper()
        one = await BrokerStores(zoo, 1).register()
        await one.topics.refresh(nothing)

        async def read_first(what: Sequence[Operation] | str) -> None:
            if not isinstance(what, str):
                await one.topics.refresh(nothing)

        one.session.after = read_first
        assert await one.topics.put("t", made("aa", 1), "n1")
        assert one.topics.version == zoo.nodes[PATHS.topics].version
        assert await one.topics.put("u", made("bb", 1), "n2")
        assert sorted(one.topics.topics) == ["t", "u"]

    run(scenario())


def test_foreign_tombstone_error_names_path() -> None:
    async def scenario() -> None:
        one = await BrokerStores(MemoryZooKeeper(), 1).register()
        await one.session.transact([Create(f"{PATHS.tombstones}/backup.1")])
        with pytest.raises(ForeignDataError, match=r"/a/cluster/tombstones/backup\.1 in"):
            await one.topics.tombstones()

    run(scenario())
