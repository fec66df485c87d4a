"""The words in which a wire message is declared.

A message is a class whose annotations are its fields in wire order::

    class HeartbeatRequest(Message):
        group_id: String
        generation_id: Int32
        member_id: String
        group_instance_id: Annotated[NullableString, Since(3)] = None

``codec`` reads the annotations and compiles an encoder and a decoder for each version. To a type
checker the same fields are plain ``str``, ``int`` and ``list``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias, TypeVar, dataclass_transform

import msgspec


class _KeywordOnly(msgspec.StructMeta):
    """Makes every field keyword-only, since Kafka's order puts new fields between old ones.

    Messages are trees and never hold themselves, so the garbage collector need not look at them:
    with it, a group of 5,000 members stops everything for twice as long.
    """

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        ours = {"kw_only": True, "gc": False}
        return super().__new__(mcs, name, bases, namespace, **{**ours, **options})


@dataclass_transform(kw_only_default=True)
class Message(msgspec.Struct, metaclass=_KeywordOnly):
    """A wire message or a structure inside one; fields are keyword-only, in wire order."""


class Kind:
    """What a field is on the wire; compared by identity of the class."""


class Fixed(Kind):
    """A value of fixed size, by its big-endian ``struct`` format character."""

    def __init__(self, fmt: str, size: int) -> None:
        self.fmt = fmt
        self.size = size


class Text(Kind):
    """A UTF-8 string with its length before it."""


class Blob(Kind):
    """Bytes with their length before them, copied out of the frame."""


class Records(Kind):
    """Record batches: like bytes, but a view of the frame in, a list of buffers out."""


class Sequential(Kind):
    """An array, with its count before it."""


class Rule:
    """Says in which versions a field is there, or may be null."""

    def __init__(self, version: int) -> None:
        self.version = version


class Since(Rule):
    """The field is there from this version on."""


class Until(Rule):
    """The field is there up to and including this version."""


class Nullable(Rule):
    """The field may be null from this version on."""


class Tagged(Rule):
    """A tagged field (KIP-482), written only where it differs from its default."""

    def __init__(self, tag: int, *, since: int) -> None:
        super().__init__(since)
        self.tag = tag


T = TypeVar("T")

Bool: TypeAlias = Annotated[bool, Fixed("?", 1)]
Int8: TypeAlias = Annotated[int, Fixed("b", 1)]
Int16: TypeAlias = Annotated[int, Fixed("h", 2)]
UInt16: TypeAlias = Annotated[int, Fixed("H", 2)]
Int32: TypeAlias = Annotated[int, Fixed("i", 4)]
UInt32: TypeAlias = Annotated[int, Fixed("I", 4)]
Int64: TypeAlias = Annotated[int, Fixed("q", 8)]
Uuid: TypeAlias = Annotated[bytes, Fixed("16s", 16)]
String: TypeAlias = Annotated[str, Text()]
NullableString: TypeAlias = Annotated[str | None, Text(), Nullable(0)]
Bytes: TypeAlias = Annotated[bytes, Blob()]
NullableBytes: TypeAlias = Annotated[bytes | None, Blob(), Nullable(0)]
Buffer: TypeAlias = bytes | bytearray | memoryview
#: Decoded: one view of the frame. Encoded: the buffers one after the other.
RecordBytes: TypeAlias = Annotated[Sequence[Buffer] | None, Records(), Nullable(0)]
Array = Annotated[list[T], Sequential()]
NullableArray = Annotated[list[T] | None, Sequential(), Nullable(0)]

ZERO_UUID = bytes(16)
