"""The text of the page ``docs/assignors.md`` around the examples."""

from __future__ import annotations

HEAD = """\
# Assignors

One of the members, the leader, decides which member gets which partitions. It uses an assignor: a
pure function of the members, their subscriptions and owned partitions, and the topics. A consumer
offers one or more assignors, in order of preference. The coordinator chooses one that all members
support.

This page is generated, and the code computes its tables (`python -m partage.assignors.page`). In
each table, members a and b share one or two topics; then c joins, then a leaves. A column is a
generation of the group; `+` marks a partition that is new to a member. A cooperative group often
needs two generations for a change: a partition that moves is first assigned to no member, until its
owner has revoked it. All other partitions are read meanwhile. In an eager group all members stop at
every change, also for partitions that stay.

| | moves | evenness | rebalance |
|---|---|---|---|
| `Range` | many | an extra partition of each topic goes to the first members | eager |
| `RoundRobin` | almost all | within one, if all subscribe alike | eager |
| `Sticky` | few | as balanced as possible | eager |
| `CooperativeSticky` | few; others never stop | as balanced as possible | cooperative |

The other assignors have special purposes. A consumer whose assignors are all cooperative rebalances
cooperatively; one eager assignor makes it eager. Assignors without a common rebalance protocol are
rejected.
"""

CUSTOM_ASSIGNOR = """\
## Writing your own

An assignor is one small class: a name, and `assign`. It gets the members and the topics, and
returns the partitions by member id and topic. The broker knows nothing about it; every member of
the group needs the class. The rest is optional:

- **User data**: `user_data` returns bytes that every member sends with its subscription. The leader
  finds them in `Member.user_data`.
- **Cooperative**: list `RebalanceProtocol.COOPERATIVE`, and end with `hold_back`, which removes
  partitions that another member still owns. A result that moves a partition directly between owners
  is rejected.
- **Versions**: when old and new code cannot assign for each other, add a version. Each version is a
  separate protocol: `name`, `name-v1` and so on. Members offer all of theirs, newest first. The
  group switches to the newest version once the last member has it, without a stop. `self.version`
  is the version in use.
- **Version probing** (KIP-429): with `has_version_probing = True` all versions share one protocol
  name, and their members form one group. The newest member leads: members state their version in
  JoinGroup, and our coordinator selects the leader by it. The leader finds the writer's version in
  `Member.version`, and has to read all versions that it lists. Apache Kafka does not know versions.
  There an older leader may find newer members. It reports this, and the newer members rejoin at
  once with a version that it reads. Once a newer member leads they use the newest version again. A
  member without a common version gets no partitions and an `AssignmentFailedError`. All members
  need `has_version_probing` for this: introduce it under a new name.

A consumer works with shallow copies of the object that it is given, one for each version
(`Assignor.at_version`). An object that an attribute refers to, such as a list or a lock, is shared
with the original. An attribute that is set later is not. So to observe an assignor, let it append
to a list instead of setting a number.

In this example one member gets all partitions and the others stand by. In version 1 members have
priorities.

```python
from partage.assignors import (
    Assignor,
    Member,
    RebalanceProtocol,
    Topic,
    check_assignment,
    hold_back,
    protocols_by_name,
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
            return -priority, member.sort_key

        wanted = {member.member_id: {} for member in members}
        for name, topic in topics.items():
            takers = [member for member in members if name in member.topics]
            if takers:
                active = min(takers, key=rank)
                wanted[active.member_id][name] = list(range(topic.partition_count))
        return hold_back(members, wanted)


topics = {"flights": Topic(name="flights", partition_count=3)}
assignor = HotStandby()
assert list(protocols_by_name([assignor])) == ["hot-standby-v1", "hot-standby"]

# A single member gets all partitions.
old = Member(member_id="old", topics=("flights",), user_data=b"1")
assert assignor.assign([old], topics) == {"old": {"flights": [0, 1, 2]}}

# A member of higher priority joins: first no member gets anything new, ...
old = Member(
    member_id="old", topics=("flights",), user_data=b"1", owned={"flights": [0, 1, 2]}, generation=1
)
new = Member(member_id="new", topics=("flights",), user_data=b"5")
first = assignor.assign([old, new], topics)
assert first == {"old": {}, "new": {}}
check_assignment([old, new], topics, first, cooperative=True)

# ... and once the old one has revoked its partitions, the new one gets them all.
old = Member(member_id="old", topics=("flights",), user_data=b"1", generation=2)
second = assignor.assign([old, new], topics)
assert second == {"old": {}, "new": {"flights": [0, 1, 2]}}
check_assignment([old, new], topics, second)
```

Give each consumer of the group an object of the class:
`Consumer(servers, group_id="tower", partition_assignment_strategy=[HotStandby(priority=5)])`.
[examples/own_assignor.py](../examples/own_assignor.py) is a complete program. A streaming query
gets the name of the class: `kafka.partition.assignment.strategy=module:Class`.

An assignor is a pure function: no clock, no randomness, no order of sets or dictionaries that may
differ between machines. So its tests need no broker, as above. Every assignment can be computed
again for an explanation (`explain` returns the reason for each partition). `Member.sort_key` gives
Kafka's order of members, in which static members keep their positions when they return under a new
id.
"""

SERVER_SIDE = """\
## In the broker

A group with the consumer group protocol (`group.protocol=consumer`, KIP-848) has no leader: its
assignors run in the broker. The broker's setting `group.consumer.assignors` lists them, the default
first, for example `--override group.consumer.assignors=uniform,sticky,my_module:MyAssignor`. A
member votes for one with `group.remote.assignor`, and most votes win.

The operator selects an assignor for a group, whatever its members vote for, with the group config
`consumer.assignor.name`:
`partage configs alter --group readers --add-config consumer.assignor.name=sticky`. Running members
move to a new target with their next heartbeats, and `partage groups describe` shows the assignor in
use. If the config is deleted or empty, the votes decide again.

The list may have:

- `uniform`: Kafka's default. Loads are equal, with as few moves as possible. If subscriptions
  differ, they are at least as even as Kafka's.
- `range`: for each topic, ranges of partitions in the order of the members' ids. The results equal
  those of Kafka's broker, which ignores racks and previous owners.
- `sticky`, `cooperative-sticky`, `rack-aware`, `roundrobin`, `co-partitioned` and
  `consistent-hashing`: the classes above, without arguments.
- `module:Class`: your own class, or an object of it. Members select it by its `name`.
- Any other name: an entry point in the group `partage.assignors`, such as
  `my-name = "my_module:MyAssignor"`.

A class that was written for members needs no change. `assign` finds the previous target in
`Member.owned`, and in `Member.user_data` the bytes that the class returns for it. If a cooperative
class holds partitions back, the broker runs it again: the broker itself revokes partitions before
it assigns them to others. It refuses classes that assign a partition to several members. It also
refuses classes that need lags: it computes a target only when members or topics change, so the
assignment would follow lags of that moment only. Kafka's own assignors in brokers get none either.

Your own assignors, and all assignors of large groups, run outside the event loop, for at most 30 s.
The result is checked as in a classic group. If an assignor fails, the previous target remains in
force. The broker logs the group, the assignor and the error, and publishes them as a
[group event](group-events.md).
"""
