"""A user's coroutine function that runs a consumer: its import, its arguments and its errors."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

from partage.lab.whatif.import_path import ImportPathError, import_object
from partage.testing.world.errors import NotSimulatedError

#: The parameter that gets the options of a member.
OPTIONS_PARAMETER: Final = "options"
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ConsumerChoiceError(ValueError):
    """Raised if an import path has no coroutine function that can run as a member."""


class ConsumerCodeError(Exception):
    """Raised if the user's code fails in a simulation, or is not a member of the group."""


class ConsumerFunction:
    """A coroutine function that runs one consumer until it is cancelled.

    Args:
        path: its import path, ``module:function``. Its first parameter gets the bootstrap servers.
            A parameter ``options`` gets a dict of consumer options.

    Raises:
        ConsumerChoiceError: there is none, or it has other parameters; the message says why.
    """

    def __init__(self, path: str) -> None:
        if not all(path.partition(":")):
            raise ConsumerChoiceError(f"--consumer {path!r} is not module:function")
        try:
            found = import_object(path)
        except ImportPathError as error:
            raise ConsumerChoiceError(str(error)) from error
        self.path = path
        self._function: Callable[..., Coroutine[Any, Any, Any]] = _checked(path, found)
        self._file = _source_file(found)
        names = _checked_parameters(path, found)
        self.has_options = OPTIONS_PARAMETER in names

    async def run(self, bootstrap_servers: str, options: Mapping[str, Any]) -> None:
        """Run the function.

        Args:
            bootstrap_servers: the addresses of the brokers.
            options: the options of the member.

        Raises:
            ConsumerCodeError: it raised an exception.
        """
        given = {OPTIONS_PARAMETER: dict(options)} if self.has_options else {}
        try:
            await self._function(bootstrap_servers, **given)
        except asyncio.CancelledError:
            raise
        except (Exception, SystemExit) as error:
            raise ConsumerCodeError(f"{self.path} failed: {self._described(error)}") from error

    def _described(self, error: BaseException) -> str:
        """Return the error, and the last line of the user's file that led to it."""
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, NotSimulatedError):
            text = str(error)
        frames = traceback.extract_tb(error.__traceback__)
        own = [each for each in frames if each.filename == self._file] or frames
        return f"{text} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else text


def _source_file(found: Any) -> str | None:
    while hasattr(found, "func"):  # of functools.partial
        found = found.func
    return inspect.getsourcefile(inspect.unwrap(found))


def _checked(path: str, found: Any) -> Callable[..., Coroutine[Any, Any, Any]]:
    if inspect.iscoroutinefunction(found):
        function: Callable[..., Coroutine[Any, Any, Any]] = found
        return function
    if inspect.isasyncgenfunction(found):
        kind = "an asynchronous generator function: remove its yield"
    elif inspect.isclass(found):
        kind = f"the class {found.__name__}"
    elif inspect.isfunction(found):
        kind = "a function without async"
    else:
        kind = f"an object of type {type(found).__name__}"
    raise ConsumerChoiceError(
        f"{path} is not a coroutine function (async def) but {kind}; whatif runs only asyncio code"
    )


def _checked_parameters(path: str, found: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters, the first of which is positional."""
    parameters = list(inspect.signature(found).parameters.values())
    first = parameters[0] if parameters else None
    if first is None or first.kind in (
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    ):
        raise ConsumerChoiceError(
            f"{path} has no positional parameter: whatif passes the bootstrap servers as the first "
            "argument, to which the consumer must connect"
        )
    needed = [
        each.name
        for each in parameters[1:]
        if each.default is inspect.Parameter.empty
        and each.kind not in _VARIADIC
        and each.name != OPTIONS_PARAMETER
    ]
    if needed:
        raise ConsumerChoiceError(
            f"{path} needs other arguments ({', '.join(needed)}): name a coroutine function with "
            f"the parameters bootstrap_servers and {OPTIONS_PARAMETER}, which calls it"
        )
    return [each.name for each in parameters[1:] if each.kind not in _VARIADIC]
