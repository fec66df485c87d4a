"""The assignors of a broker, by the names in ``group.consumer.assignors``."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Final

from partage.assignors import (
    Assignor,
    ConsistentHashing,
    CooperativeSticky,
    CoPartitioned,
    RackAware,
    RoundRobin,
    Sticky,
)
from partage.assignors.server_side import (
    AssignorAdapter,
    ServerSideAssignor,
    ServerSideRange,
    Uniform,
)
from partage.broker.overrides import OverrideError

#: Packages add assignors with entry points in this group. The name of an entry point is the name
#: of the assignor; its value is a subclass of `Assignor`, or an object of one.
ENTRY_POINT_GROUP: Final = "partage.assignors"

_BUILT_IN: Final[dict[str, ServerSideAssignor]] = {
    each.name: each for each in (Uniform(), ServerSideRange())
}
_OURS: Final[dict[str, type[Assignor]]] = {
    each.name: each
    for each in (ConsistentHashing, CooperativeSticky, CoPartitioned, RackAware, RoundRobin, Sticky)
}


class AssignorRegistry:
    """The assignors that members can select; the first one is the default.

    Args:
        names: Kafka's ``group.consumer.assignors``. Each is ``uniform`` or ``range``, the name of
            another assignor of Partage or of an entry point, or ``module:Class`` for a subclass of
            `Assignor`, which members select by its ``name``.

    Raises:
        OverrideError: There are no names, or an assignor does not exist or cannot run in a broker.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._assignors: dict[str, ServerSideAssignor] = {}
        for name in names:
            try:
                assignor = _load(name)
            except (ImportError, AttributeError, TypeError, ValueError) as error:
                raise OverrideError(f"group.consumer.assignors: {error}") from error
            if assignor.name in self._assignors:
                raise OverrideError(f"group.consumer.assignors has {assignor.name!r} twice")
            self._assignors[assignor.name] = assignor
        if not self._assignors:
            raise OverrideError("group.consumer.assignors needs at least one assignor")

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which members select the assignors, in the operator's order."""
        return tuple(self._assignors)

    def get(self, name: str) -> ServerSideAssignor:
        """Return an assignor.

        Raises:
            KeyError: It does not exist.
        """
        return self._assignors[name]

    def is_built_in(self, name: str) -> bool:
        """True if the assignor is Kafka's ``uniform`` or ``range``, whose duration is known."""
        return self._assignors.get(name) is _BUILT_IN.get(name, self)


def _load(name: str) -> ServerSideAssignor:
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if name in _OURS:
        return AssignorAdapter(_OURS[name]())
    module, colon, attribute = name.partition(":")
    if colon:
        return AssignorAdapter(_instance(name, getattr(importlib.import_module(module), attribute)))
    # Not at the start of a broker: with its imports it takes 10 ms.
    from importlib.metadata import entry_points

    found = entry_points(group=ENTRY_POINT_GROUP, name=name)
    if not found:
        known = sorted([*_BUILT_IN, *_OURS, *entry_points(group=ENTRY_POINT_GROUP).names])
        raise ValueError(
            f"there is no assignor {name!r}; use one of {', '.join(known)}, or module:Class"
        )
    return AssignorAdapter(_instance(name, next(iter(found)).load()), name)


def _instance(name: str, loaded: object) -> Assignor:
    made = loaded() if isinstance(loaded, type) else loaded
    if not isinstance(made, Assignor):
        raise ValueError(f"{name} is not a subclass of partage.assignors.Assignor")
    return made
