"""The rebalance protocols of KIP-429."""

from __future__ import annotations

from enum import IntEnum


class RebalanceProtocol(IntEnum):
    """The way in which members give up partitions (KIP-429).

    With EAGER, members give up all partitions before they join. With COOPERATIVE, they give up only
    the partitions that move. A consumer uses the highest protocol that all its assignors support.
    """

    EAGER = 0
    COOPERATIVE = 1
