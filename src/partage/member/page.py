"""The page ``docs/members.md``, from the tables that a member acts on.

``python -m partage.member.page`` prints it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from partage.member.reactions import OTHERWISE, REACTIONS
from partage.member.settings import MemberSettings
from partage.member.states import CAUSES, INSIDE, MEANINGS, PREDECESSORS, MemberState
from partage.member.timers import TIMERS

_HEAD = """\
# Members

What a member of a group does about each answer of the coordinator, in which state it is then, and
what it does of its own accord. This page is generated from the tables that it acts on
(`python -m partage.member.page`); [groups](groups.md) is the coordinator's half. The behaviour is
that of Apache Kafka's consumer with the classic protocol, except for what
[the last section](#where-we-differ-from-apache-kafka) lists.
"""

_INSIDE = """\
From every state in which the member wants to be in the group ({inside}) three more arrows lead
away: to Dormant if nobody polls in time, to Releasing if it is to leave, to Failed if an error is
final. The picture leaves them out.
"""

_ANSWERS = """\
An answer counts only if it is still waited for: not from an earlier generation, nor from a
connection that is gone. Whatever the table does not name has the last row.
"""

_OWNED = """\
| when | eager | cooperative |
| --- | --- | --- |
| before joining | everything is revoked | what the subscription no longer covers is revoked |
| while joining | nothing is owned | the rest is worked on |
| with the assignment | all of it is assigned | what it lacks is revoked; what is new is assigned; \
if anything was revoked the member joins again |
| UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, a final error, or too slow to poll | everything is lost | \
everything is lost |
| leaving, while stable | everything is revoked | everything is revoked |
| leaving, while the group rebalances | | everything is lost |
| draining | everything is revoked | everything is revoked at the end of a rebalance of its own |

Revoked and lost are not called for an empty set; assigned is called at the end of every rebalance,
with what is new. One callback runs at a time, and while it does what it is about is not delivered.
Nobody waits for a call with nothing new: if the next is due before it was made, it is left out.
A member that has not heard from the coordinator for a whole session delivers nothing until it has,
for it may have been dropped.

A partition is handed on only after its owner has joined again without it, so two members work on
one only if the group has gone on without the first of them and it has not heard of it yet: it was
dropped or, being static, kept its place but missed the join phase. What it commits is refused.
"""

#: What we do otherwise than Apache Kafka 4's consumer, and why.
DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "After a whole session without a sign from the coordinator nothing is delivered until "
        "there is one.",
        "Others may own it by then. Kafka's consumer goes on until it is told.",
    ),
    (
        "A session counts from when the accepted heartbeat was sent.",
        "That is the latest that the coordinator can count from. Kafka's client counts from the "
        "answer, and so can outlive its session.",
    ),
    (
        "With a final error everything is lost, and the coordinator is told to go on without us.",
        "Kafka's consumer raises the error and still holds what it owned, without heartbeats.",
    ),
    (
        "Too slow a member may leave while it joins.",
        "In Kafka joining happens in poll, so nobody can be away.",
    ),
    (
        "Revoked is not called for an empty set under the eager protocol either.",
        "KIP-429 has it so for all; Kafka calls it before every rebalance.",
    ),
    (
        "A leader that cannot assign says so and syncs, and backs off.",
        "In Kafka the group waits for it until its sync times out.",
    ),
    (
        "A rejoin that is asked for during a rebalance follows it.",
        "In Kafka the end of the sync phase forgets it.",
    ),
    (
        "A member that is given nothing new is ready for the next rebalance at once.",
        "In Kafka it must be in poll to join again, and whoever waits for what another has revoked "
        "waits for all members to come back from their work.",
    ),
    (
        "A request that parks is not followed by heartbeats.",
        "They would wait behind it, and a parked member has no session. Kafka's client sends them "
        "while its SyncGroup is parked.",
    ),
)


def page() -> str:
    """The whole page, in Markdown."""
    sections = (
        _HEAD,
        "## States\n",
        *_states(),
        "## Answers\n",
        _ANSWERS,
        _answers(),
        "## Timers\n",
        _timers(),
        "## What is owned\n",
        _OWNED,
        "## Where we differ from Apache Kafka\n",
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
            (state, MEANINGS[state], ", ".join(b for b in MemberState if b in PREDECESSORS[state]))
            for state in MemberState
        ),
    )
    yield _INSIDE.format(inside=", ".join(state for state in MemberState if state in INSIDE))
    arrows = [
        f"    [*] --> {MemberState.OUT}",
        *(
            f"    {before} --> {after}: {why}"
            for (before, after), why in CAUSES.items()
            if before not in INSIDE or after in INSIDE
        ),
    ]
    yield "\n".join(("```mermaid", "stateDiagram-v2", *arrows, "```", ""))


def _answers() -> str:
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for request, reactions in REACTIONS.items():
        for error, reaction in reactions.items():
            rows[error.name][request] = reaction.value
    rows["anything else"] = {request: reaction.value for request, reaction in OTHERWISE.items()}
    return _table(
        ("error", *REACTIONS),
        ((name, *(row.get(request, "") for request in REACTIONS)) for name, row in rows.items()),
    )


def _timers() -> str:
    settings = MemberSettings(group_id="", protocol_type="")
    delays = {name: getattr(settings, name) for name in settings.__struct_fields__}
    shown = {name: f"{ms:,} ms" for name, ms in delays.items() if isinstance(ms, int)}
    return _table(
        ("timer", "armed when", "for", "when it fires"),
        ((facts.key, facts.armed, facts.delay.format(**shown), facts.fires) for facts in TIMERS),
    )


if __name__ == "__main__":
    print(page(), end="")
