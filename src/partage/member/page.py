"""Generate the page ``docs/members.md`` from the tables that a member acts on.

``python -m partage.member.page`` prints it.
"""

from __future__ import annotations

from collections import defaultdict

from partage.member.consumer_group.page import consumer_member_section
from partage.member.reactions import DEFAULT_REACTIONS, REACTIONS
from partage.member.settings import MemberSettings
from partage.member.states import (
    ACTIVE_STATES,
    PREDECESSORS,
    STATE_DESCRIPTIONS,
    TRANSITION_CAUSES,
    MemberState,
)
from partage.member.timers import TIMERS
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
# Members

This page shows the reactions of a group member to each response of the coordinator, by state, and
its timers. It is generated from the tables that the member acts on
(`python -m partage.member.page`); [groups](groups.md) describes the coordinator. The behaviour is
that of Apache Kafka's consumer, except for the differences in the last sections. All sections but
[the last one](#the-consumer-group-protocol) are about the classic protocol.
"""

_ACTIVE_INTRO = """\
Every state in which the member takes part in the group ({inside}) has three more transitions: to
Stale if poll is not called in time, to PrepareLeaving if leave is requested, to Fatal at a fatal
error. The diagram omits them.
"""

_REACTIONS_INTRO = """\
A response counts only if the member still waits for it. A response from an earlier generation or
from a closed connection is ignored. The last row holds for every error that the table omits.

Commits have another connection than JoinGroup. So a commit may get ILLEGAL_GENERATION because the
JoinGroup under way has started the next generation. A dynamic member then waits for the response to
JoinGroup, unless an earlier JoinGroup of this generation got no response.
"""

_OWNERSHIP = """\
| when | eager | cooperative |
| --- | --- | --- |
| before joining | all partitions are revoked | partitions outside the subscription are revoked |
| while joining | no partition is owned | the other partitions are still delivered |
| with the assignment | all of it is assigned | partitions outside it are revoked; new ones are \
assigned; if any was revoked the member rejoins |
| UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, a fatal error, or poll not called in time | \
all partitions are lost | all partitions are lost |
| leaving, while stable | all partitions are revoked | all partitions are revoked |
| leaving, while the group rebalances | | all partitions are lost |
| draining | all partitions are revoked | all partitions are revoked after one more rebalance |

The callbacks `revoked` and `lost` are not called for an empty set. `assigned` is called at the end
of every rebalance, with the new partitions. Kafka's consumer does the same. The text of KIP-429
differs: it calls no callback for an empty set, and its example calls `assigned` before `revoked`.

If a callback raises, the other callbacks still run. The poll raises the first error and logs later
ones. One callback runs at a time, and its partitions are not delivered meanwhile. No step waits for
a callback without partitions: if the next callback is due first, the empty one is skipped. A member
that got no response from the coordinator for a whole session delivers no records until the next
response, because it may have been removed.

A partition changes hands only after its owner has rejoined without it. So two members work on one
partition only if the group continued without the first of them, and that member does not know it
yet. Either it was removed, or it is static, kept its place and missed the join phase. The
coordinator rejects its commits.
"""

#: The differences to Apache Kafka 4's consumer, with reasons.
DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "After a whole session without a response from the coordinator, the member delivers no "
        "records until the next response.",
        "Other members may own its partitions by then. Kafka's consumer continues until a response "
        "tells it.",
    ),
    (
        "A session begins when the accepted heartbeat was sent.",
        "The coordinator's session cannot have begun earlier. Kafka's client counts from the "
        "response, and so can outlive its session.",
    ),
    (
        "At a fatal error the member loses its partitions and leaves the group.",
        "Kafka's consumer raises the error and keeps its partitions, without heartbeats.",
    ),
    (
        "The poll timer also runs while a member joins.",
        "In Kafka joining happens in poll, so the timer cannot expire meanwhile.",
    ),
    (
        "The callback `revoked` is not called for an empty set under the eager protocol either.",
        "KIP-429 specifies this for both protocols; Kafka calls it before every eager rebalance.",
    ),
    (
        "A leader whose assignor fails reports this in SyncGroup, and backs off.",
        "In Kafka the group waits until the leader's SyncGroup times out.",
    ),
    (
        "A rejoin requested during a rebalance follows that rebalance.",
        "In Kafka the end of the sync phase drops the request.",
    ),
    (
        "A member without new partitions is ready for the next rebalance at once.",
        "In Kafka it must be in poll to rejoin. So a member that waits for a revoked partition "
        "waits until all members call poll.",
    ),
    (
        "No heartbeats are sent while a request is parked.",
        "They would wait behind it, and a parked member has no session timeout. Kafka's client "
        "sends them while its SyncGroup is parked.",
    ),
)


def page() -> str:
    """Return the page in Markdown."""
    settings = MemberSettings(group_id="", protocol_type="")
    drawn = {
        (before, after): why
        for (before, after), why in TRANSITION_CAUSES.items()
        if before not in ACTIVE_STATES or after in ACTIVE_STATES
    }
    active = ", ".join(state for state in MemberState if state in ACTIVE_STATES)
    return join_blocks(
        _HEAD,
        section(
            "States",
            state_table(STATE_DESCRIPTIONS, PREDECESSORS),
            _ACTIVE_INTRO.format(inside=active),
            state_diagram({MemberState.UNSUBSCRIBED: ""}, drawn),
        ),
        section("Responses", _REACTIONS_INTRO, _reactions_table()),
        section("Timers", timer_table(TIMERS, str, settings)),
        section("Ownership", _OWNERSHIP),
        differences_section(DIFFERENCES),
        consumer_member_section(),
    )


def _reactions_table() -> str:
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for request, reactions in REACTIONS.items():
        for error, reaction in reactions.items():
            rows[error.name][request] = reaction.value
    rows["any other error"] = {
        request: reaction.value for request, reaction in DEFAULT_REACTIONS.items()
    }
    return table(
        ("error", *REACTIONS),
        ((name, *(row.get(request, "") for request in REACTIONS)) for name, row in rows.items()),
    )


if __name__ == "__main__":
    print(page(), end="")
