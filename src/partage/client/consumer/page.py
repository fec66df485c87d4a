"""Generator of the tables of options in ``docs/`` from the `Config` classes and their defaults.

A table is between the comments ``<!-- options of NAME -->`` and ``<!-- end of options -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from partage.client.config import (
    ClientConfig,
    DynamicMemberConfig,
    MembershipConfig,
    Option,
    SecurityConfig,
)
from partage.client.consumer.config import ConsumerConfig, ReaderConfig
from partage.client.consumer.options import option_defaults
from partage.statemachine.pages import table

_HEAD: Final = ("option", "type", "default", "Kafka's setting", "meaning")
#: The classes from the base to the most derived one.
_CLASSES: Final = (
    SecurityConfig,
    ClientConfig,
    DynamicMemberConfig,
    MembershipConfig,
    ReaderConfig,
    ConsumerConfig,
)
#: The number of base classes whose options a table has, by the name in the comment.
_TABLES: Final = {"security": slice(0, 1), "consumers": slice(1, None)}
_PLACE: Final = re.compile(
    r"(<!-- options of (\w+) -->\n).*?(<!-- end of options -->\n)", re.DOTALL
)
_MIB: Final = 1024 * 1024


def fill_tables(text: str) -> str:
    """Return a page with its tables of options replaced by the current ones."""
    return _PLACE.sub(lambda found: f"{found[1]}\n{options_table(found[2])}\n{found[3]}", text)


def options_table(name: str) -> str:
    """Return the table of the options of "consumers" or of "security"."""
    hints = get_type_hints(ConsumerConfig, include_extras=True)
    defaults = option_defaults()
    rows = []
    for option in _options_of(_TABLES[name]):
        kind, facts = get_args(hints[option])
        value = _value(defaults[option], facts.unit)
        rows.append((f"`{option}`", _type_name(kind), value, _kafka(facts), f"{facts.doc}."))
    return table(_HEAD, rows)


def _options_of(classes: slice) -> Iterator[str]:
    """Yield the options of some classes; those of the most derived class come first."""
    bases: tuple[Any, ...] = (None, *_CLASSES[:-1])
    for kind, base in reversed(list(zip(_CLASSES, bases, strict=True))[classes]):
        inherited = () if base is None else base.__annotations__
        yield from (name for name in kind.__annotations__ if name not in inherited)


def _type_name(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        names = [_type_name(arg) for arg in args if arg is not NoneType]
        return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    if origin is Literal:
        return "`str`"
    if origin is tuple:
        return f"tuple of {_type_name(args[0])}"
    if kind is Any:
        return "object"
    if origin is PathLike:
        return "path"
    if origin is not None:
        return "function" if origin is Callable else str(origin.__name__).lower()
    return f"`{kind.__name__}`"


def _value(default: Any, unit: str) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, tuple):
        return ", ".join(f"`{part}`" for part in default)
    if unit == "bytes" and default % _MIB == 0:
        return f"{default // _MIB} MiB"
    if unit == "bytes":
        return f"{default} byte{'' if default == 1 else 's'}"
    if unit:
        return f"{default:,} {unit}"
    return f"`{default}`"


def _kafka(facts: Option) -> str:
    if facts.kafka is None:
        return "—"
    return f"`{facts.kafka}`" + ("" if facts.kip is None else f" (KIP-{facts.kip})")
