"""Connectors: units of work with a configuration and numbered tasks, as in Kafka Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

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
            placement for the same arguments.
        config: The configuration; `WorkerPool.config_of` returns it to the work.

    Raises:
        ValueError: ``name``, ``tasks`` or ``strategy`` is invalid.
        TypeError: A name or a value in ``config`` is not a string.
    """

    name: str
    tasks: int
    strategy: TaskStrategy = "balanced"
    config: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if not self.name or _SEPARATOR in self.name:
            raise ValueError(f"a connector's name must be a word without '/', not {self.name!r}")
        if self.tasks < 0:
            raise ValueError(f"connector {self.name!r}: tasks must be 0 or more, not {self.tasks}")
        if not callable(self.strategy) and self.strategy not in ("balanced", "sticky"):
            raise ValueError(
                f"connector {self.name!r}: strategy must be 'balanced', 'sticky' or a function, "
                f"not {self.strategy!r}"
            )
        if not all(isinstance(text, str) for item in self.config.items() for text in item):
            raise TypeError(f"connector {self.name!r}: config must have names and values of str")

    @property
    def task_units(self) -> list[str]:
        """The units of the tasks, by number."""
        return [f"{self.name}{_SEPARATOR}{number}" for number in range(self.tasks)]


def connector_name(unit: str) -> str:
    """Return the name of the connector that a unit belongs to, if it belongs to one."""
    return unit.partition(_SEPARATOR)[0]


def split_units(units: Iterable[str | Connector]) -> tuple[list[str], list[Connector]]:
    """Return the plain units and the connectors.

    Raises:
        TypeError: An element is neither.
        ValueError: Two connectors have one name, or a plain unit has the name of a connector.
    """
    if isinstance(units, str):
        raise ValueError(f"units must be a list: [{units!r}]")
    plain: list[str] = []
    connectors: dict[str, Connector] = {}
    for each in units:
        if isinstance(each, str):
            plain.append(each)
        elif not isinstance(each, Connector):
            raise TypeError(f"units must be strings, not {each!r}")
        elif each.name in connectors:
            raise ValueError(f"two connectors are named {each.name!r}")
        else:
            connectors[each.name] = each
    for unit in plain:
        if connector_name(unit) in connectors:
            raise ValueError(f"unit {unit!r} has the name of a connector or of its tasks")
    return plain, list(connectors.values())
