"""Generator of the page ``docs/groups.md`` from the coordinator's tables.

``python -m partage.coordinator.page`` prints the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from partage.coordinator.answers import ANSWERS, CHECKS, COLUMNS
from partage.coordinator.states import CAUSES, MEANINGS, PREDECESSORS, RESUMED, GroupState
from partage.coordinator.timers import TIMERS
from partage.model.settings import KAFKA_NAMES, KAFKA_NAMES_SCALED, GroupSettings

_HEAD = """\
# Groups

What the coordinator answers, in which state, and when it acts of its own accord. This page is
generated from the tables that it acts on (`python -m partage.coordinator.page`). The stories in
`tests/coordinator/scenarios` show the same step by step.

The behaviour is that of Apache Kafka 4 with classic groups, except for what
[the last section](#where-we-differ-from-apache-kafka) lists.
"""

_OUTSIDE = """\
A coordinator that is loading answers COORDINATOR_LOAD_IN_PROGRESS, to a heartbeat no error. If its
log fails it answers everybody who waits COORDINATOR_NOT_AVAILABLE, to an OffsetFetch
NOT_COORDINATOR, and loads again.
"""

_STORED = """\
A group is stored with its members when a generation begins, before anybody hears of it; when its
leader has assigned; when it has emptied; and when a static member returns under a new id. Joins,
leaves and heartbeats are not stored. Every answer waits until all that was written before it is
durable, the answers to reads too.

A coordinator that takes over finds a stable group stable, with its generation, its members and
their assignments, and gives every member a whole session. A group whose sync was awaited is loaded
awaiting it: its leader may go on and assign, but if anybody sends a JoinGroup, and so has not heard
of the generation, all join anew.

Offsets expire, after the retention:

| group | counted from | which |
|---|---|---|
| without members, and had some | when it became empty, or a later commit | all |
| of consumers, stable | the commit | of topics that no member subscribes to |
| never had members | the commit | all |
| any other | | none |

An offset that an old client committed with a retention of its own expires after that instead.
"""

_DIFFER = """\
As its source reads; [differences](differences.md) has what was found by asking both.
"""

#: The deliberate differences from Apache Kafka 4, each with the reason.
DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "A generation is stored before JoinGroup is answered, and a group is loaded awaiting its "
        "sync; any JoinGroup then ends that sync.",
        "The client-side assignment proposal asks for it. Kafka stores a generation with its "
        "assignment only, so that a failover between the two brings the last one back to life.",
    ),
    (
        "A tie of votes for a protocol goes to the leader's order.",
        "In Kafka it goes to whichever a hash map has first.",
    ),
    (
        "A member may state its version of a protocol, in a tagged field of JoinGroup from v6 on: "
        "of those who joined, one of the highest version leads. Whoever leads keeps the lead among "
        "equals.",
        "KIP-429 describes it (version probing): newer code reads what older code wrote. In Kafka "
        "the leader stays the leader.",
    ),
    (
        "A leader that cannot assign says so in a tagged field of SyncGroup: who waits is told "
        "REBALANCE_IN_PROGRESS and why, and all join anew.",
        "In Kafka the group waits for the sync to time out.",
    ),
    (
        "A static member that returns to a full group finds its place.",
        "Kafka counts it as one more, and closes the group to it.",
    ),
    (
        "Static members that are away count for `group.max.size` in the join phase.",
        "They stay in the group; in Kafka it can outgrow its size by them.",
    ),
    (
        "A member whose metadata the group's record has no room for is told "
        "GROUP_MAX_SIZE_REACHED.",
        "In Kafka nobody in the group gets an assignment: UNKNOWN_SERVER_ERROR.",
    ),
    (
        "A request that a member repeats while it waits voids the older one, which is answered "
        "REBALANCE_IN_PROGRESS. Whoever waits in the name of a member that leaves or is dropped is "
        "told UNKNOWN_MEMBER_ID.",
        "In Kafka some of these are never answered.",
    ),
    (
        "A member that was never answered cannot commit, whichever generation it names.",
        "It is in none. Kafka accepts the number of the present one.",
    ),
    (
        "The initial delay runs to its end.",
        "In Kafka a pending or failed member that goes can end it early.",
    ),
    (
        "A pending member that leaves starts no rebalance.",
        "It was not in the generation. In Kafka it does in a stable group.",
    ),
    (
        "A JoinGroup with an instance id and a member id that is pending is answered "
        "UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.",
        "Kafka answers UNKNOWN_SERVER_ERROR.",
    ),
    (
        "A static member that returns before it asked for its assignment has the whole rebalance "
        "timeout to ask.",
        "In Kafka its predecessor is missed when that is up, and a rebalance begins.",
    ),
    (
        "A JoinGroup or SyncGroup that is answered at once renews the session.",
        "It is a sign of life.",
    ),
    (
        "A new group is not stored before its first generation.",
        "There is nothing in it that a failover would need.",
    ),
    (
        "What is committed to a group that is empty, as when its offsets are reset, stays for the "
        "whole retention.",
        "In Kafka it goes with the others, counted from when the group became empty: at once, if "
        "that is nearly over.",
    ),
    (
        "An empty group that somebody pending may come back to does not expire.",
        "Kafka removes it.",
    ),
    (
        "While a group of consumers rebalances for the first time, any topic may be in use, and "
        "OffsetDelete is answered GROUP_SUBSCRIBED_TO_TOPIC; in later ones the present "
        "subscriptions count.",
        "Kafka goes by the last generation's.",
    ),
    (
        "OffsetDelete also removes offsets of topics and partitions that are gone, and says "
        "UNKNOWN_TOPIC_OR_PARTITION.",
        "Kafka says the same, and leaves them until they expire.",
    ),
    (
        "A group that DescribeGroups or OffsetFetch names more than once is answered once.",
        "An id is small, what is answered to it is not. Kafka does so in DeleteGroups only.",
    ),
    (
        "DescribeGroups shows no assignments while the sync is awaited.",
        "Those of the last generation are void. Kafka shows them on until the new ones come.",
    ),
    (
        "A static member that returns is shown under its new client id and host at once.",
        "In Kafka at the next rebalance.",
    ),
    (
        "`offset.metadata.max.bytes` counts bytes.",
        "Kafka counts UTF-16 code units.",
    ),
)


def page() -> str:
    """Return the whole page, in Markdown."""
    sections = (
        _HEAD,
        "## States\n",
        *_states(),
        "## Answers\n",
        _answers(),
        _OUTSIDE,
        "## Checked first\n",
        *_checks(),
        "## Timers\n",
        _timers(),
        "## Settings\n",
        _settings(),
        "## What is stored\n",
        _STORED,
        "## Where we differ from Apache Kafka\n",
        _DIFFER,
        _table(("here", "why, or what Kafka does"), DIFFERENCES),
    )
    return "\n".join(sections)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _states() -> Iterator[str]:
    yield _table(
        ("state", "", "follows"),
        (
            (state, MEANINGS[state], ", ".join(b for b in GroupState if b in PREDECESSORS[state]))
            for state in GroupState
        ),
    )
    arrows = [
        *(f"    [*] --> {state}: {why}" for state, why in RESUMED.items()),
        *(f"    {before} --> {after}: {why}" for (before, after), why in CAUSES.items()),
        f"    {GroupState.DEAD} --> [*]",
    ]
    yield "\n".join(("```mermaid", "stateDiagram-v2", *arrows, "```", ""))


def _answers() -> str:
    heads = (str(column) if column is not None else "no such group" for column in COLUMNS)
    return _table(
        ("request", *heads),
        ((row, *(answers[column].value for column in COLUMNS)) for row, answers in ANSWERS.items()),
    )


def _checks() -> Iterator[str]:
    for request, checks in CHECKS.items():
        yield f"**{request}**\n"
        yield "".join(f"{number}. {check}\n" for number, check in enumerate(checks, start=1))


def _timers() -> str:
    settings = GroupSettings()
    delays = {name: f"{getattr(settings, name):,} ms" for name in settings.__struct_fields__}
    return _table(
        ("timer", "armed when", "for", "when it fires"),
        (
            (
                facts.key.__name__.removesuffix("Timer").lower(),
                facts.armed,
                facts.delay.format(**delays),
                facts.fires,
            )
            for facts in TIMERS
        ),
    )


def _settings() -> str:
    names = {field: (name, 1) for name, (part, field) in KAFKA_NAMES.items() if part == "groups"}
    for name, (part, field, factor) in KAFKA_NAMES_SCALED.items():
        if part == "groups":
            names[field] = (name, factor)
    settings = GroupSettings()
    rows = []
    for field in settings.__struct_fields__:
        value = getattr(settings, field)
        name, factor = names.get(field, ("", 1))
        rows.append((f"`{name}`" if name else "fixed", f"{value // factor:,}", f"`{field}`"))
    return _table(("Kafka's name", "default", "field"), rows)


if __name__ == "__main__":
    print(page(), end="")
