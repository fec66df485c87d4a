"""Sets of partitions, by topic id.

The broker knows topics by their ids, so that a topic that was deleted and created again does not
inherit the assignment of its predecessor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

#: The 16 bytes of a topic's UUID.
TopicId: TypeAlias = bytes

#: Partitions by topic id. The partitions are sorted, and no topic is without partitions.
PartitionSet: TypeAlias = Mapping[TopicId, tuple[int, ...]]

#: Partitions by topic id, each with the member epoch at which it was assigned (KIP-1251).
EpochedPartitions: TypeAlias = Mapping[TopicId, Mapping[int, int]]
