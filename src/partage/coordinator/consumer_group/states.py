"""The states of a consumer group."""

from __future__ import annotations

from enum import StrEnum


class ConsumerGroupState(StrEnum):
    """The state of a consumer group, with the name that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


#: A description of each state, for the documentation.
CONSUMER_STATE_DESCRIPTIONS: dict[ConsumerGroupState, str] = {
    ConsumerGroupState.EMPTY: "The group has no members, but may have offsets.",
    ConsumerGroupState.ASSIGNING: "The group epoch is ahead of the target assignment.",
    ConsumerGroupState.RECONCILING: "Some members have not reached the target assignment.",
    ConsumerGroupState.STABLE: "All members have the target assignment.",
    ConsumerGroupState.DEAD: "The group was removed; responses are those for a missing group.",
}
