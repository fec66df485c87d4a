"""The section on the consumer group protocol in the page ``docs/members.md``."""

from __future__ import annotations

from collections import defaultdict

from partage.member.consumer_group.reactions import (
    CONSUMER_REACTIONS,
    DEFAULT_CONSUMER_REACTIONS,
)
from partage.member.consumer_group.settings import ConsumerMemberSettings
from partage.member.consumer_group.states import (
    ACTIVE_CONSUMER_STATES,
    CONSUMER_STATE_MEANINGS,
    CONSUMER_STATE_PREDECESSORS,
    CONSUMER_TRANSITION_CAUSES,
    ConsumerMemberState,
)
from partage.member.consumer_group.timers import CONSUMER_TIMERS
from partage.statemachine.pages import join_blocks, section, state_diagram, table, timer_table
from partage.statemachine.pages import state_table as table_of_states

_HEAD = """\
A member with the consumer group protocol (KIP-848) has a second state machine, with Kafka's states.
It sends only ConsumerGroupHeartbeat. The coordinator assigns partitions; the member moves to its
assignment and confirms it.
"""

_STATES_END = """\
From each state in which the member takes part in the group ({inside}) it also moves to Stale if
poll is not called in time, to PrepareLeaving if leave is requested, and to Fatal at a fatal error.
"""

_STEPS = """\
1. The member joins with epoch 0, a member id that it made (KIP-1082), and all fields. Later
   heartbeats contain only changed fields. After an error or a new connection it sends all fields.
2. It revokes the partitions that its assignment lacks, and calls `revoked`. It delivers none of
   their records after the assignment arrived.
3. It adds the new partitions and calls `assigned`. Partitions whose topic id is not in the metadata
   yet are added later.
4. It confirms the result by a heartbeat at once. Only this heartbeat frees the revoked partitions.
5. If the coordinator removed it, `lost` is called for all partitions, and it joins again.

A newer assignment that arrives during a callback is applied after it. A dynamic member that leaves
and joins again takes another member id, so that a late leave request cannot remove it. A static
member leaves with epoch -2, and keeps its partitions until its session ends.
"""

#: The differences to Apache Kafka 4's consumer, with reasons.
CONSUMER_MEMBER_DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "A member with no accepted heartbeat for 45 s delivers no records until the next one.",
        "Other members may own its partitions by then. The coordinator does not send its session "
        "timeout; 45 s is the least one that a broker allows by default. Kafka's consumer "
        "continues until a response tells it.",
    ),
    (
        "After GROUP_ID_NOT_FOUND a member that has joined loses its partitions and joins again.",
        "The coordinator lost the group, and joining creates it. For Kafka's consumer the error is "
        "fatal.",
    ),
    (
        "After REQUEST_TIMED_OUT a member sends its heartbeat again.",
        "A later heartbeat may be in time. For Kafka's consumer the error is fatal.",
    ),
    (
        "The state Stable follows the accepted confirmation.",
        "In Kafka it follows the sent confirmation.",
    ),
    (
        "A member whose heartbeat interval exceeds a third of `max_poll_interval_ms` sends "
        "heartbeats more often.",
        "A rebalance may have begun after its last heartbeat. The member must stop delivering "
        "records before its rebalance timeout ends.",
    ),
)


def consumer_member_section() -> str:
    """Return the section, in Markdown."""
    drawn = {
        (before, after): why
        for (before, after), why in CONSUMER_TRANSITION_CAUSES.items()
        if before not in ACTIVE_CONSUMER_STATES or after in ACTIVE_CONSUMER_STATES
    }
    inside = ", ".join(each for each in ConsumerMemberState if each in ACTIVE_CONSUMER_STATES)
    return section(
        "The consumer group protocol",
        _HEAD,
        table_of_states(CONSUMER_STATE_MEANINGS, CONSUMER_STATE_PREDECESSORS),
        _STATES_END.format(inside=inside),
        state_diagram({ConsumerMemberState.UNSUBSCRIBED: ""}, drawn),
        _subsection("Steps of a member with the consumer group protocol", _STEPS),
        _subsection("Responses with the consumer group protocol", _reactions()),
        _subsection(
            "Timers with the consumer group protocol",
            timer_table(CONSUMER_TIMERS, str, ConsumerMemberSettings(group_id="")),
        ),
        _subsection(
            "Differences with the consumer group protocol",
            table(("Partage", "reason, or Kafka's behaviour"), CONSUMER_MEMBER_DIFFERENCES),
        ),
    )


def _subsection(title: str, block: str) -> str:
    return join_blocks(f"### {title}", block)


def _reactions() -> str:
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for request, reactions in CONSUMER_REACTIONS.items():
        for error, reaction in reactions.items():
            rows[error.name][request] = reaction.value
    rows["any other error"] = {
        request: reaction.value for request, reaction in DEFAULT_CONSUMER_REACTIONS.items()
    }
    return table(
        ("error", *CONSUMER_REACTIONS),
        (
            (name, *(row.get(request, "") for request in CONSUMER_REACTIONS))
            for name, row in rows.items()
        ),
    )
