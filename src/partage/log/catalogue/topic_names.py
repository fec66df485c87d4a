"""Topic names, with Kafka's rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: Topics that hold coordinator state, and the topic of group events.
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__group_events"})
TOPIC_NAME_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]*")


def check_topic_name(name: str) -> str | None:
    """Return what is wrong with a topic name; None if it is legal."""
    if name in ("", ".", ".."):
        return f"{name!r} is not a legal topic name"
    if len(name) > TOPIC_NAME_MAX:
        return f"a topic name of {len(name)} characters exceeds the limit of {TOPIC_NAME_MAX}"
    if not _LEGAL.fullmatch(name):
        return (
            f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
        )
    return None


def find_name_collision(name: str, names: Iterable[str]) -> str | None:
    """Return another topic name that differs only in '.' and '_'; None if there is none.

    Kafka refuses such names because its metrics cannot distinguish them.
    """
    unified = name.replace(".", "_")
    if "_" not in unified:
        return None
    return next((other for other in names if other.replace(".", "_") == unified), None)
