"""Rows of the table: requests that are sent to a group in each of several scenes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from interop.oracle.connection import Pending
from interop.oracle.scenes import EVERY_STATE, Scene

#: Sends a request and describes the response.
Send = Callable[[Scene], str]


class Row(NamedTuple):
    """A request, and the scenes in which it is sent."""

    name: str
    send: Send
    scenes: tuple[str, ...]
    #: Scenes after which the state is left out. Kafka creates a group before it rejects some
    #: requests; whether the group is visible depends on concurrent writes.
    unsettled: tuple[str, ...] = ()


ROWS: list[Row] = []


def row(
    name: str, scenes: tuple[str, ...] = EVERY_STATE, *, unsettled: tuple[str, ...] = ()
) -> Callable[[Send], Send]:
    """Make a function a row."""

    def add(send: Send) -> Send:
        ROWS.append(Row(name, send, scenes, unsettled))
        return send

    return add


def outcome(scene: Scene, pending: Pending, say: Callable[..., str]) -> str:
    """Describe the response, or say that the request is parked."""
    if scene.stage.parked(pending):
        return "parked"
    return say(pending.result())
