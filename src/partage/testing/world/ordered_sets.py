"""Sets whose order does not depend on ``PYTHONHASHSEED``, for clients in a simulated world.

The hash of a string is another one in each process, and so is the order of a set of topics or
partitions. A client that iterates over such a set would send its requests in another order in each
run of a seed. In a world, modules of clients get the classes below instead of `set` and
`frozenset`. The sets that a client returns to the user's program are of these classes, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Modules of Partage whose functions return sets of topics, partitions or units to the user.
_MODULES: Final[tuple[str, ...]] = (
    "partage.client.consumer.base_consumer",
    "partage.client.consumer.group_subscription",
    "partage.recipes.pool",
)
#: Methods and operators that return a set.
_RESULTS: Final = (
    *("__and__", "__or__", "__sub__", "__xor__", "__rand__", "__ror__", "__rsub__", "__rxor__"),
    *("difference", "intersection", "symmetric_difference", "union"),
)


class _SetType(type):
    """The type of `OrderedSet`: every set is an instance of it, as `set` is in other modules."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__mro__[1])

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.__mro__[1])


class OrderedSet(set[T], metaclass=_SetType):
    """A set of topics or partitions that is iterated in their order.

    If other elements cannot be compared, they are iterated in the order of their hashes.
    """

    def __iter__(self) -> Iterator[T]:
        count = len(self)
        for each in _ordered(super().__iter__()):
            if len(self) != count:
                raise RuntimeError("Set changed size during iteration")
            yield each

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self))}}}" if self else "set()"

    def pop(self) -> T:
        """Remove and return the first element.

        Raises:
            KeyError: the set is empty.
        """
        for each in self:
            self.remove(each)
            return each
        raise KeyError("pop from an empty set")


class OrderedFrozenSet(frozenset[T], metaclass=_SetType):
    """A frozen set of topics or partitions that is iterated in their order."""

    def __iter__(self) -> Iterator[T]:
        return iter(_ordered(super().__iter__()))

    def __repr__(self) -> str:
        return f"frozenset({{{', '.join(map(repr, self))}}})" if self else "frozenset()"


def _ordered(elements: Iterator[T]) -> list[T]:
    found = list(elements)
    try:
        return sorted(found)  # type: ignore[type-var]  # not all can be compared
    except TypeError:
        return found


def _returning(kind: type, name: str) -> Callable[..., Any]:
    original = getattr(kind.__mro__[1], name)

    def call(self: Any, *others: Iterable[Any]) -> Any:
        result = original(self, *others)
        return result if result is NotImplemented else kind(result)

    return call


for _kind in (OrderedSet, OrderedFrozenSet):
    for _name in _RESULTS:
        setattr(_kind, _name, _returning(_kind, _name))


@contextmanager
def ordered_sets() -> Iterator[None]:
    """Give modules of clients the sets of this module for ``set`` and ``frozenset``."""
    names = [each for each in _MODULES if each in sys.modules]
    if find_spec("aiokafka") is not None:
        import_module("aiokafka")
        names += [each for each in sys.modules if each.startswith("aiokafka.")]
    modules: list[Any] = [sys.modules[each] for each in names]
    for module in modules:
        module.set, module.frozenset = OrderedSet, OrderedFrozenSet
    try:
        yield
    finally:
        for module in modules:
            del module.set, module.frozenset
