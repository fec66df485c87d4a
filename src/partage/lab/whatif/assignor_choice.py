"""The assignors of a simulation: those of Partage by name, and the user's own by import path."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Final

from partage import assignors as exported
from partage.assignors import Assignor
from partage.assignors.server_side import Uniform
from partage.lab.whatif.import_path import ImportPathError, describe_failure, import_object

#: The client-side assignors of Partage by name, which members can offer.
ASSIGNORS: Final[Mapping[str, type[Assignor]]] = {
    kind.name: kind
    for _, kind in sorted(vars(exported).items())
    if isinstance(kind, type) and issubclass(kind, Assignor) and kind is not Assignor
}
#: The assignor of the broker, under which the group is simulated with the consumer protocol.
CONSUMER_PROTOCOL_ASSIGNOR: Final = Uniform.name


class AssignorChoiceError(ValueError):
    """Raised if there is no assignor of a name, or an import path has none."""


class AssignorFailureError(Exception):
    """Raised if an assignor raises an exception, or returns an invalid assignment."""


def make_assignor(name: str) -> Assignor:
    """Return a new assignor for a member of a simulated group.

    Args:
        name: One of `ASSIGNORS`, or ``module:Class`` for a subclass of `Assignor`. It is created
            without arguments. ``module:name`` of an object of such a class gives a copy.

    Raises:
        AssignorChoiceError: There is none; the message says why.
    """
    if ":" not in name:
        if name not in ASSIGNORS:
            known = ", ".join((*ASSIGNORS, CONSUMER_PROTOCOL_ASSIGNOR))
            raise AssignorChoiceError(
                f"unknown assignor {name!r}; assignors are {known}, or your own as module:Class"
            )
        return ASSIGNORS[name]()
    try:
        found = import_object(name)
    except ImportPathError as error:
        raise AssignorChoiceError(str(error)) from error
    if isinstance(found, Assignor):
        return found.at_version(found.version)
    if not (isinstance(found, type) and issubclass(found, Assignor)):
        raise AssignorChoiceError(
            f"{name} is {_described(found)}, not a subclass of partage.assignors.Assignor"
        )
    missing = sorted(found.__abstractmethods__)
    if missing:
        raise AssignorChoiceError(f"{name} does not implement {', '.join(missing)}()")
    if not isinstance(getattr(found, "name", None), str):
        raise AssignorChoiceError(
            f'{name} has no name: set name = "..." in the class, as members offer it to the group'
        )
    needed = _required_arguments(found)
    if needed:
        raise AssignorChoiceError(
            f"{name} needs arguments ({', '.join(needed)}): name an object of it instead of the "
            "class"
        )
    try:
        return found()
    except Exception as error:
        raise AssignorChoiceError(f"{name} cannot be created: {describe_failure(error)}") from error


def _described(found: object) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else type(found).__name__


def _required_arguments(kind: type[Assignor]) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, each in inspect.signature(kind).parameters.items()
        if each.default is inspect.Parameter.empty and each.kind not in kinds
    ]
