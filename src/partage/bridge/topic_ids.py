"""Names of the topics that a request identifies by id (since OffsetCommit and OffsetFetch v10)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from partage.bridge.api_adapter import ApiCall


class IdentifiedTopic(Protocol):
    """A topic of a request, whose name is empty if the request has its id."""

    name: str
    topic_id: bytes


def has_topic_ids(call: ApiCall[Any]) -> bool:
    """True if the request and its response have the ids of topics instead of names."""
    return call.version > call.adapter.api.by_name_max


def set_topic_names(call: ApiCall[Any], topics: Iterable[IdentifiedTopic]) -> None:
    """Set the name of each topic from its id; an unknown id gets an empty name.

    A topic that was deleted and created again has another id, so its earlier id is unknown.
    """
    if has_topic_ids(call):
        for topic in topics:
            topic.name = call.broker.topic_name(bytes(topic.topic_id)) or ""
