"""Validation of the arguments that users pass to public functions and classes."""

from __future__ import annotations

import inspect
import operator
import os
import reprlib
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, Final, SupportsFloat, SupportsIndex, cast

#: The largest value of a field of 16 bits, such as an epoch of a producer.
INT16_MAX: Final = 2**15 - 1
#: The largest value of a field of 32 bits, as most numbers in Kafka's protocol are.
INT32_MAX: Final = 2**31 - 1
#: The largest value of a field of 64 bits, such as an offset.
INT64_MAX: Final = 2**63 - 1


class InvalidArgumentError(TypeError, ValueError):
    """An argument has a type or a value that can never work; nothing was done.

    It is a `TypeError` and a `ValueError`, so that either handler catches it.
    """


def invalid_argument(name: str, value: object, expected: str) -> InvalidArgumentError:
    """Return an error that names the argument, its value and what was expected."""
    return InvalidArgumentError(f"{name}={shorten(value)}: expected {expected}")


def shorten(value: object) -> str:
    """Return the repr of a value, at most about 80 characters."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 80
    return short.repr(value)


def check_int(
    name: str, value: object, *, least: int = 0, most: int | None = None, unit: str = ""
) -> int:
    """Return an integer, also one of another library; raise if it is not in the range.

    Args:
        name: The name of the argument, for the message.
        value: The value to check. Neither a boolean nor a float is an integer.
        least: The smallest allowed value.
        most: The largest allowed value; None for no limit.
        unit: The unit of the number, such as "ms" or "bytes"; empty if there is none.
    """
    number = _to_int(value)
    if number is None:
        if unit == "ms" and isinstance(value, float):
            raise invalid_argument(
                name, value, "an integer: the unit is milliseconds; for one second use 1000"
            )
        unit = "milliseconds, such as 1000 for one second" if unit == "ms" else unit
        raise invalid_argument(
            name, value, f"an integer number of {unit}" if unit else "an integer"
        )
    if number < least or (most is not None and number > most):
        limit = f"of {least:,} or more" if most is None else f"from {least:,} to {most:,}"
        raise invalid_argument(name, value, f"an integer {limit} {unit}".rstrip())
    return number


def _to_int(value: object) -> int | None:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    return operator.index(cast(SupportsIndex, value))


def check_timeout_ms(value: object, name: str = "timeout_ms") -> int:
    """Return a timeout in milliseconds; raise for a float, which is usually meant as seconds."""
    return check_int(name, value, unit="ms")


def check_optional_timeout_ms(value: object, name: str = "timeout_ms") -> int | None:
    """Return a timeout in milliseconds, or None, which means no limit."""
    return None if value is None else check_timeout_ms(value, name)


def check_number(
    name: str, value: object, *, least: float = 0.0, most: float | None = None
) -> float:
    """Return a finite number, also one of another library; raise if it is not in the range."""
    limit = f"{least:g} or more" if most is None else f"from {least:g} to {most:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise invalid_argument(name, value, f"a number, {limit}")
    number = float(cast(SupportsFloat, value))
    if not least <= number <= (float("inf") if most is None else most) or number == float("inf"):
        raise invalid_argument(name, value, f"a number, {limit}")
    return number


def check_bool(name: str, value: object) -> bool:
    """Return a boolean; raise for any other value, because texts such as "false" are true."""
    if not isinstance(value, bool):
        raise invalid_argument(name, value, "True or False")
    return value


def check_text(name: str, value: object, example: str = "") -> str:
    """Return a string; raise if it is empty or not a string."""
    if not isinstance(value, str) or not value:
        suffix = f", such as {example!r}" if example else ""
        raise invalid_argument(name, value, f"a string that is not empty{suffix}")
    return value


def check_texts(
    name: str, values: object, example: str, *, may_be_empty: bool = False
) -> list[str]:
    """Return a list of strings; raise for a single string, which Python would split."""
    wanted = f"a list of strings, such as [{example!r}]"
    if isinstance(values, str):
        raise invalid_argument(name, values, f"a list: [{values!r}]")
    if isinstance(values, bytes) or not isinstance(values, Iterable):
        raise invalid_argument(name, values, wanted)
    found = list(values)
    for value in found:
        if not isinstance(value, str) or not value:
            raise invalid_argument(name, found, f"{wanted}; {shorten(value)} is not a valid name")
    if not found and not may_be_empty:
        raise invalid_argument(name, found, f"at least one string, such as [{example!r}]")
    return found


def check_function(name: str, value: object, takes: str) -> None:
    """Raise if a value cannot be called.

    Args:
        name: The name of the argument.
        value: The value to check.
        takes: The parameters of the function, for the message.
    """
    if not callable(value):
        raise invalid_argument(name, value, f"a function of {takes}")


def check_instance(name: str, value: object, kind: type[Any]) -> None:
    """Raise if a value is not an instance of a class, also if it is the class itself."""
    if isinstance(value, kind):
        return
    if inspect.isclass(value) and issubclass(value, kind):
        raise InvalidArgumentError(
            f"{name}={value.__name__}: expected an instance, not the class: {value.__name__}(...)"
        )
    names: dict[type, str] = {str: "a string", Mapping: "a dict"}
    raise invalid_argument(name, value, names.get(kind, f"an instance of {kind.__name__}"))


def check_list(name: str, values: object, kind: type[Any], example: str) -> None:
    """Raise if a value is not a list of instances of a class.

    Args:
        name: The name of the argument.
        values: The values to check.
        kind: The class of each value.
        example: A valid list, for the message.
    """
    if isinstance(values, Iterable):
        found = list(values)
        if all(isinstance(value, kind) for value in found):
            return
        values = found
    raise invalid_argument(name, values, f"a list of {example}")


def check_json(name: str, value: object) -> None:
    """Raise if JSON cannot express a value."""
    try:
        import json  # only here, and not at the start of a broker

        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_argument(name, value, f"a value that JSON can express ({error})") from None


def check_path(name: str, value: object) -> None:
    """Raise if a value is not a path."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise invalid_argument(name, value, "a path, such as 'data'")
