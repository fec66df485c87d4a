"""The section on consumer groups in the page ``docs/groups.md``."""

from __future__ import annotations

from partage.coordinator.consumer_group.response_table import (
    CONSUMER_COLUMNS,
    CONSUMER_DIFFERENCES,
    CONSUMER_RESPONSES,
    CONSUMER_VALIDATIONS,
    MIGRATIONS,
)
from partage.coordinator.consumer_group.states import CONSUMER_STATE_DESCRIPTIONS
from partage.statemachine.pages import join_blocks, section, table

_HEAD = """\
Consumers with `group.protocol=consumer` use the protocol of KIP-848. They declare their topics in
ConsumerGroupHeartbeat. An assignor in the broker computes the target assignment, and each member
moves to it by its own heartbeats: it first gives up partitions, and then gets those that are free.
The behaviour is that of Apache Kafka 4.4.
"""

_EPOCHS = """\
The group epoch grows when the subscriptions, the preferred assignor or the subscribed topics
change. The target assignment follows at the next heartbeat, at most once in
`group.consumer.assignment.interval.ms`. The epoch of a member follows when it has given up all
partitions that are not in its target. A partition is free when no member has it, and no member must
still give it up.

The members vote for an assignor with `group.remote.assignor`. The operator selects one with the
group config `consumer.assignor.name` (resource type GROUP), and the votes then have no effect. They
decide again if the config is deleted or empty, or if the broker no longer has that assignor. In
the last case, the other configs of the group can only be changed together with this one. A
change of this config raises the group epoch at the next heartbeat.

The heartbeat that causes a target waits until an assignor has computed it. If its member reconnects
meanwhile and sends all fields, the coordinator answers that heartbeat, and the one that waits
no longer changes anything: the member would not read its response. It learns its new assignment
with the next heartbeat.
"""

_DIFFERENCES = """\
`make interop` sends the same requests to Apache Kafka 4.4 and to our broker, and checks both
responses of each row. It leaves out three rows: slow and failing assignors, and the hash, which no
response has.
"""

_STORED = """\
Everything is stored before the response is sent: group epoch, members, target assignment,
assignments of the members, and resolved regular expressions. So a coordinator that takes over
continues a reconciliation where it was. It restarts the sessions of all members.

Offsets of topics to which no member subscribes expire after the retention, counted from the commit.
"""


_MIGRATION = """\
`group.consumer.migration.policy` allows groups to change their protocol while they have members. An
empty group always changes its protocol with its next member. One batch of records stores each
change, so a coordinator that takes over sees the group before or after it.
"""

_MIXED = """\
Before you stop the last member with the consumer protocol, wait until the group is `Stable`. At a
downgrade, a member with the classic protocol may still have an earlier epoch. Its next commit or
heartbeat then gets ILLEGAL_GENERATION, and it loses its partitions. The next readers repeat the
records that it had not committed. Apache Kafka does the same.

A member with the classic protocol follows no leader here. JoinGroup is answered at once, or when
the target that it causes is computed, with the member's epoch as generation and the first protocol
that it lists. SyncGroup returns its partitions. Heartbeat and SyncGroup return
REBALANCE_IN_PROGRESS when the member must join again: the target is newer than its epoch, it must
give up partitions, or all partitions that it waits for are free. From then on, and after each
JoinGroup, it has its rebalance timeout for its next JoinGroup or SyncGroup; then it is removed.
"""


def consumer_groups_section() -> str:
    """Return the section, in Markdown."""
    return section(
        "Groups with the consumer protocol",
        _HEAD,
        table(
            ("state", "description"),
            ((str(state), text) for state, text in CONSUMER_STATE_DESCRIPTIONS.items()),
        ),
        _EPOCHS,
        _subsection("Responses to consumer groups", _responses()),
        _subsection("Checks of ConsumerGroupHeartbeat", _checks()),
        _subsection(
            "Changes of the protocol",
            join_blocks(_MIGRATION, table(("cause", "condition", "effect"), MIGRATIONS), _MIXED),
        ),
        _subsection("Stored records of consumer groups", _STORED),
        _subsection(
            "Differences of consumer groups",
            join_blocks(
                _DIFFERENCES,
                table(("Partage", "reason, or Kafka's behaviour"), CONSUMER_DIFFERENCES),
            ),
        ),
    )


def _subsection(title: str, block: str) -> str:
    return join_blocks(f"### {title}", block)


def _responses() -> str:
    rows = ((request, *answers) for request, answers in CONSUMER_RESPONSES.items())
    return table(("request", *CONSUMER_COLUMNS), rows)


def _checks() -> str:
    return "".join(f"{number}. {check}\n" for number, check in enumerate(CONSUMER_VALIDATIONS, 1))
