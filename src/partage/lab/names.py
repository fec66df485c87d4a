"""Names of the topics and groups in a world."""

from __future__ import annotations

from typing import Final

GROUPS: Final = ("g", "h")
#: A group with offsets that never has members.
MEMBERLESS_GROUP: Final = "simple"
#: The topic sets that consumers subscribe to.
SUBSCRIPTIONS: Final = (frozenset({"t"}), frozenset({"u"}), frozenset({"t", "u"}))
#: A topic without readers, for which offsets are committed.
UNREAD_TOPIC: Final = "x"
