"""The text of the page ``docs/assignors.md`` around the examples."""

from __future__ import annotations

HEAD = """\
# Assignors

Who gets which partitions is decided by one of the members, the leader, with an assignor: a pure
function of the members, what they subscribe to and own, and the topics. A consumer offers one or
more, in order of preference; the coordinator chooses one that all members have.

This page is generated, and its pictures are what the code does (`python -m
partage.assignors.page`). In each, members a and b share out a topic (or two), then c comes, then a
goes. A column is a generation of the group; `+` marks what is new to a member. Cooperative groups
often need two generations for a change: what moves is first given to nobody, until its owner has
revoked it. All the rest goes on being read meanwhile. In an eager group everybody stops at every
change, also for what stays.

| | moves | evenness | rebalance |
|---|---|---|---|
| `Range` | much | an extra partition of each topic goes to the first members | eager |
| `RoundRobin` | almost everything | within one, if all subscribe alike | eager |
| `Sticky` | little | as level as can be | eager |
| `CooperativeSticky` | little; the rest never stops | as level as can be | cooperative |

The others have a purpose of their own. A consumer whose assignors are all cooperative rebalances
cooperatively; one eager assignor among them makes it eager, and assignors that share no rebalance
protocol are refused.
"""

CUSTOM_ASSIGNOR = """\
## Writing your own

One small class: a name, and `assign`. It gets the members and the topics, and returns for each
member id its partitions, by topic. Nothing about it is known to the broker; every member of the
group needs the class. What else there is, is there if you want it:

- **User data**: `user_data` returns bytes that every member sends with its subscription and that
  the leader finds in `Member.user_data`.
- **Cooperative**: list `RebalanceProtocol.COOPERATIVE`, and end with `hold_back`, which takes out
  whatever somebody else still owns. A result in which a partition goes from owner to owner at once
  is refused.
- **Versions**: when old and new code cannot assign for each other, add a version. Each is a
  protocol of its own, `name`, `name-v1` and so on; members offer all of theirs, newest first, and
  the group goes over to the newest once the last member has it, with no stop. `self.version` says
  which one is being spoken.
- **Probing** (KIP-429): with `probing = True` all versions share the one name, and members of all
  of them one group. The newest leads: our coordinator sees to it, for members state their version
  in JoinGroup. It finds in `Member.version` who wrote what, and has to read all versions that it
  lists. Apache Kafka knows nothing of versions: there an older leader may find newer members, says
  so, and they join again at once, writing what it reads; once a newer one leads they write the
  newest again. Who has no version in common with the leader gets nothing and is told why, in
  `AssignmentFailed`. Everybody has to be `probing` for that: go over to it under a new name.

A consumer works with shallow copies of the object that it is given, one for each version
(`Assignor.at`). What an attribute refers to, a list or a lock, is shared with the original;
an attribute that is set later is not. So look at what your assignor notes in a list of its own, not
in a number.

Here one member gets everything and the others stand by. In version 1 members have priorities.

```python
from partage.assignors import (
    Assignor,
    Member,
    RebalanceProtocol,
    Topic,
    check_assignment,
    hold_back,
    offered,
)


class HotStandby(Assignor):
    name = "hot-standby"
    versions = (1, 0)
    rebalance_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self, priority=0):
        self.priority = priority

    def user_data(self, topics, owned, generation):
        return str(self.priority).encode() if self.version >= 1 else None

    def assign(self, members, topics):
        def rank(member):
            priority = int(member.user_data or 0) if self.version >= 1 else 0
            return -priority, member.order

        wanted = {member.member_id: {} for member in members}
        for name, topic in topics.items():
            takers = [member for member in members if name in member.topics]
            if takers:
                active = min(takers, key=rank)
                wanted[active.member_id][name] = list(range(topic.partition_count))
        return hold_back(members, wanted)


topics = {"flights": Topic(name="flights", partition_count=3)}
assignor = HotStandby()
assert list(offered([assignor])) == ["hot-standby-v1", "hot-standby"]

# A member by itself has everything.
old = Member(member_id="old", topics=("flights",), user_data=b"1")
assert assignor.assign([old], topics) == {"old": {"flights": [0, 1, 2]}}

# One of higher priority joins: first nobody has anything new, ...
old = Member(
    member_id="old", topics=("flights",), user_data=b"1", owned={"flights": [0, 1, 2]}, generation=1
)
new = Member(member_id="new", topics=("flights",), user_data=b"5")
first = assignor.assign([old, new], topics)
assert first == {"old": {}, "new": {}}
check_assignment([old, new], topics, first, cooperative=True)

# ... and once the old one has revoked it, the new one has everything.
old = Member(member_id="old", topics=("flights",), user_data=b"1", generation=2)
second = assignor.assign([old, new], topics)
assert second == {"old": {}, "new": {"flights": [0, 1, 2]}}
check_assignment([old, new], topics, second)
```

An assignor is a pure function: no clock, no chance, no order of sets or dictionaries that may
differ from one machine to the next. Then its tests need no broker, as above, and every assignment
can be computed again to be explained (`explain` tells why each partition went where it went).
`Member.order` is Kafka's order of members, in which static ones keep their places when they return
under a new id.
"""
