"""Import of a user's object by its path, ``module:name``."""

from __future__ import annotations

import traceback
from importlib import import_module
from pathlib import Path
from typing import Any


class ImportPathError(ValueError):
    """Raised if an import path has no object; the message says why."""


def import_object(path: str) -> Any:
    """Return the object of an import path.

    Args:
        path: ``module:name``.

    Raises:
        ImportPathError: The module cannot be imported, or it has no object of this name.
    """
    module_name, _, attribute = path.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ImportPathError(
                f"there is no module {module_name!r} for {path}: its directory must be the current "
                "one, or in PYTHONPATH"
            ) from None
        raise ImportPathError(f"{path} cannot be imported: {error}") from error
    except Exception as error:
        raise ImportPathError(f"{path} cannot be imported: {describe_failure(error)}") from error
    if not hasattr(module, attribute):
        raise ImportPathError(f"module {module_name!r} has no {attribute!r}")
    return getattr(module, attribute)


def describe_failure(error: BaseException) -> str:
    """Return the type and message of an exception, and the line that raised it."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else text
    )
