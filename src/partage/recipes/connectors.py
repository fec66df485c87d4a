"""Connectors: units of work with a configuration and numbered tasks, as in Kafka Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from partage.model.arguments import (
    InvalidArgumentError,
    check_instance,
    check_int,
    check_text,
    invalid_argument,
)

_SEPARATOR: Final = "/"

#: Takes the names of the tasks and of the workers, both sorted; returns the tasks by worker.
PlaceTasks: TypeAlias = Callable[[Sequence[str], Sequence[str]], Mapping[str, Iterable[str]]]
TaskStrategy: TypeAlias = Literal["balanced", "sticky"] | PlaceTasks


class Connector(msgspec.Struct, frozen=True):
    """A unit of work that has a configuration and tasks; workers share the tasks.

    A connector named ``jdbc`` with two tasks has the units ``jdbc``, ``jdbc/0`` and ``jdbc/1``. The
    first one is for work that the connector needs once, such as watching its source.

    Attributes:
        name: The name, without ``/``.
        tasks: The number of tasks.
        strategy: The placement of the tasks. With ``balanced`` the workers' numbers of its tasks
            differ by at most one, and few running tasks move. With ``sticky`` a running task moves
            only if its worker is lost. A function places the tasks itself; it must return the same
            placement for the same arguments, or its first placement is kept.
        config: The configuration; `WorkerPool.config_of` returns it to the work.

    Raises:
        InvalidArgumentError: ``name``, ``tasks`` or ``strategy`` is invalid, or a name or a value
            in ``config`` is not a string.
    """

    name: str
    tasks: int
    strategy: TaskStrategy = "balanced"
    config: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        check_text("name", self.name)
        check_int("tasks", self.tasks)
        check_instance("config", self.config, Mapping)
        if _SEPARATOR in self.name:
            raise InvalidArgumentError(
                f"a connector's name must be a word without '/', not {self.name!r}"
            )
        if not callable(self.strategy) and self.strategy not in ("balanced", "sticky"):
            raise InvalidArgumentError(
                f"connector {self.name!r}: strategy must be 'balanced', 'sticky' or a function, "
                f"not {self.strategy!r}"
            )
        if not all(isinstance(text, str) for item in self.config.items() for text in item):
            raise InvalidArgumentError(
                f"connector {self.name!r}: config must have names and values of str"
            )

    @property
    def task_units(self) -> list[str]:
        """The units of the tasks, by number."""
        return [f"{self.name}{_SEPARATOR}{number}" for number in range(self.tasks)]


def connector_name(unit: str) -> str:
    """Return the name of the connector that a unit belongs to, if it belongs to one."""
    return unit.partition(_SEPARATOR)[0]


def split_units(units: Any) -> tuple[list[str], list[Connector]]:
    """Return the plain units and the connectors.

    Raises:
        InvalidArgumentError: An element is neither, two connectors have one name, or a plain unit
            has the name of a connector.
    """
    if isinstance(units, str):
        raise invalid_argument("units", units, f"a list: [{units!r}]")
    if isinstance(units, bytes) or not isinstance(units, Iterable):
        raise invalid_argument("units", units, "a list of strings and connectors")
    plain: list[str] = []
    connectors: dict[str, Connector] = {}
    for each in units:
        if isinstance(each, str):
            plain.append(each)
        elif not isinstance(each, Connector):
            raise InvalidArgumentError(f"units must be strings, not {each!r}")
        elif each.name in connectors:
            raise InvalidArgumentError(f"two connectors are named {each.name!r}")
        else:
            connectors[each.name] = each
    for unit in plain:
        if connector_name(unit) in connectors:
            raise InvalidArgumentError(f"unit {unit!r} has the name of a connector or of its tasks")
    return plain, list(connectors.values())
