"""Generator of the page ``docs/groups.md`` from the coordinator's tables.

``python -m partage.coordinator.page`` prints the page.
"""

from __future__ import annotations

from collections.abc import Iterator

from partage.coordinator.consumer_group.page import consumer_groups_section
from partage.coordinator.response_table import RESPONSES, STATE_COLUMNS, VALIDATIONS
from partage.coordinator.states import (
    LOADED_STATES,
    PREDECESSORS,
    STATE_DESCRIPTIONS,
    TRANSITION_CAUSES,
    GroupState,
)
from partage.coordinator.timers import TIMERS, TimerKey
from partage.model.settings import KAFKA_NAMES, KAFKA_NAMES_SCALED, GroupSettings
from partage.statemachine.pages import (
    differences_section,
    join_blocks,
    section,
    state_diagram,
    state_table,
    table,
    timer_table,
)

_HEAD = """\
# Groups

This page shows the coordinator's response to each request in each state, and its timers. It is
generated from the tables that the coordinator uses (`python -m partage.coordinator.page`). The
scenarios in `tests/coordinator/scenarios` show the same step by step.

The first sections describe classic groups, and
[one section](#groups-with-the-consumer-protocol) those of KIP-848.

The behaviour is that of Apache Kafka 4 with classic groups, except for the differences in
[the last section](#where-we-differ-from-apache-kafka).
"""

_OUTSIDE = """\
While it is loading, the coordinator answers COORDINATOR_LOAD_IN_PROGRESS, but no error to
heartbeats. If its log fails, it answers all open requests with COORDINATOR_NOT_AVAILABLE, or
NOT_COORDINATOR for an OffsetFetch, and loads again.
"""

_STORED = """\
A group is stored with its members:

- when a generation starts, before JoinGroup is answered;
- when its leader sends the assignment;
- when it becomes empty;
- when a static member returns with a new id.

Joins, leaves and heartbeats are not stored. Every response waits until all records written before
it are durable. This includes responses to reads.

A coordinator that takes over a stable group keeps its generation, members and assignments, and
restarts the sessions. A group with a pending sync continues to wait for it, and the leader can
still send the assignment. But if a member sends JoinGroup, it has not received the generation, and
all members must join again.

Offsets expire after the retention:

| group | counted from | which |
|---|---|---|
| without members, but had some | the time it became empty, or a later commit | all |
| stable, of consumers | the commit | those of topics that no member subscribes to |
| never had members | the commit | all |
| any other | | none |

An offset that an old client committed with an explicit retention expires after that instead.
"""

_DIFFER = """\
These differences were found in Kafka's source code. [Differences](differences.md) lists those that
were found by running both.
"""

#: The deliberate differences from Apache Kafka 4, each with the reason.
DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "A generation is stored before JoinGroup is answered. After loading, a pending sync "
        "continues; any JoinGroup aborts it.",
        "The client-side assignment proposal asks for it. Kafka stores a generation only with its "
        "assignment, so a failover between the two restores the previous generation.",
    ),
    (
        "The order of the leader's protocols decides a tie of votes.",
        "In Kafka the iteration order of a hash map does.",
    ),
    (
        "A member may state its version of a protocol, in a tagged field of JoinGroup from v6 on. "
        "A member with the highest version leads. The current leader keeps the lead if its version "
        "is among the highest.",
        "KIP-429 describes it (version probing): newer code reads what older code wrote. In Kafka "
        "the leader does not change.",
    ),
    (
        "A leader that cannot assign reports it in a tagged field of SyncGroup. All parked members "
        "get REBALANCE_IN_PROGRESS with the reason, and join again.",
        "In Kafka the group waits until the sync times out.",
    ),
    (
        "A static member can return to a full group.",
        "Kafka counts it as a new member and rejects it.",
    ),
    (
        "Absent static members count for `group.max.size` in the join phase.",
        "They stay in the group. Kafka does not count them, so the group can exceed its maximum "
        "size.",
    ),
    (
        "A member whose metadata does not fit into the group's record gets GROUP_MAX_SIZE_REACHED.",
        "In Kafka no member of the group gets an assignment: UNKNOWN_SERVER_ERROR.",
    ),
    (
        "If a member repeats a parked request, the older one gets REBALANCE_IN_PROGRESS. Parked "
        "requests of a member that leaves or is removed get UNKNOWN_MEMBER_ID.",
        "Kafka never answers some of these requests.",
    ),
    (
        "A member without any JoinGroup response cannot commit, whichever generation it names.",
        "It is in no generation. Kafka accepts the current one.",
    ),
    (
        "The initial delay never ends early.",
        "In Kafka it can end when a pending or failed member is removed.",
    ),
    (
        "A pending member that leaves starts no rebalance.",
        "It was not in the generation. In Kafka it starts one in a stable group.",
    ),
    (
        "A JoinGroup with an instance id and a pending member id gets "
        "UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.",
        "Kafka answers UNKNOWN_SERVER_ERROR.",
    ),
    (
        "A static member that returns before it sent SyncGroup gets the full rebalance timeout "
        "to send it.",
        "In Kafka its predecessor's timeout continues and starts a rebalance.",
    ),
    (
        "A JoinGroup or SyncGroup that is answered at once restarts the session.",
        "It shows that the member is alive.",
    ),
    (
        "A new group is not stored before its first generation.",
        "It contains nothing that a failover would need.",
    ),
    (
        "An offset that is committed to an empty group, for example by a reset, is kept for the "
        "full retention.",
        "In Kafka it expires with the other offsets, counted from the time when the group became "
        "empty. That can be immediately.",
    ),
    (
        "An empty group with a pending member does not expire.",
        "Kafka removes it.",
    ),
    (
        "During the first rebalance of a consumer group, every topic counts as subscribed, and "
        "OffsetDelete gets GROUP_SUBSCRIBED_TO_TOPIC. In later ones the current "
        "subscriptions count.",
        "Kafka uses those of the last generation.",
    ),
    (
        "OffsetDelete also removes offsets of topics and partitions that no longer exist, and "
        "returns UNKNOWN_TOPIC_OR_PARTITION.",
        "Kafka returns the same error, but keeps the offsets until they expire.",
    ),
    (
        "If DescribeGroups or OffsetFetch names a group more than once, the response has it once.",
        "The data of a group can be much larger than its id. Kafka does so in DeleteGroups only.",
    ),
    (
        "DescribeGroups shows no assignments while the sync is pending.",
        "Those of the last generation are void. Kafka shows them until the new ones are stored.",
    ),
    (
        "A static member that returns is shown with its new client id and host at once.",
        "In Kafka only after the next rebalance.",
    ),
    (
        "`offset.metadata.max.bytes` counts bytes.",
        "Kafka counts UTF-16 code units.",
    ),
)


def page() -> str:
    """Return the whole page, in Markdown."""
    return join_blocks(
        _HEAD,
        section(
            "States",
            state_table(STATE_DESCRIPTIONS, PREDECESSORS),
            state_diagram(LOADED_STATES, TRANSITION_CAUSES, final=(GroupState.DEAD,)),
        ),
        section("Responses", _responses(), _OUTSIDE),
        section("Checks before the table", *_checks()),
        section("Timers", timer_table(TIMERS, _timer_name, GroupSettings())),
        section("Settings", _settings()),
        section("Stored records", _STORED),
        consumer_groups_section(),
        differences_section(DIFFERENCES, _DIFFER),
    )


def _responses() -> str:
    heads = (
        str(column) if column is not None else "group does not exist" for column in STATE_COLUMNS
    )
    return table(
        ("request", *heads),
        (
            (row, *(answers[column].value for column in STATE_COLUMNS))
            for row, answers in RESPONSES.items()
        ),
    )


def _checks() -> Iterator[str]:
    for request, checks in VALIDATIONS.items():
        yield f"**{request}**\n"
        yield "".join(f"{number}. {check}\n" for number, check in enumerate(checks, start=1))


def _timer_name(key: type[TimerKey]) -> str:
    return key.__name__.removesuffix("Timer").lower()


def _settings() -> str:
    names = {field: (name, 1) for name, (part, field) in KAFKA_NAMES.items() if part == "groups"}
    for name, (part, field, factor) in KAFKA_NAMES_SCALED.items():
        if part == "groups":
            names[field] = (name, factor)
    settings = GroupSettings()
    rows = []
    for field in settings.__struct_fields__:
        value = getattr(settings, field)
        if not isinstance(value, int):
            continue  # the settings of consumer groups
        name, factor = names.get(field, ("", 1))
        rows.append((f"`{name}`" if name else "fixed", f"{value // factor:,}", f"`{field}`"))
    return table(("Kafka's name", "default", "field"), rows)


if __name__ == "__main__":
    print(page(), end="")
