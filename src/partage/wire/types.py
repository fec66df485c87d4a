"""Field types for the declaration of wire messages.

A message is a class whose annotations are its fields in wire order::

    class HeartbeatRequest(Message):
        group_id: String
        generation_id: Int32
        member_id: String
        group_instance_id: Annotated[NullableString, Since(3)] = None

``codec`` reads the annotations and compiles an encoder and a decoder for each version. For a type
checker the same fields are plain ``str``, ``int`` and ``list``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias, TypeVar, dataclass_transform

import msgspec


class _KeywordOnly(msgspec.StructMeta):
    """Metaclass that makes every field keyword-only: Kafka inserts new fields between old ones.

    Messages are trees and contain no reference cycles, so the garbage collector skips them. With
    garbage collection, a group of 5,000 members takes twice as long.
    """

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        ours = {"kw_only": True, "gc": False}
        return super().__new__(mcs, name, bases, namespace, **{**ours, **options})


@dataclass_transform(kw_only_default=True)
class Message(msgspec.Struct, metaclass=_KeywordOnly):
    """A wire message or a nested structure. Fields are keyword-only and in wire order."""


class FieldKind:
    """The wire format of a field. The plain base class stands for a nested structure."""


class FixedKind(FieldKind):
    """A value of fixed size, given by its big-endian ``struct`` format character."""

    def __init__(self, fmt: str, size: int) -> None:
        self.fmt = fmt
        self.size = size


class StringKind(FieldKind):
    """A UTF-8 string, preceded by its length."""


class BytesKind(FieldKind):
    """Bytes, preceded by their length and copied out of the frame."""


class RecordsKind(FieldKind):
    """Record batches. Decoded as a view of the frame; encoded from a list of buffers."""


class ArrayKind(FieldKind):
    """An array, preceded by its count."""


class VersionRule:
    """Restricts the versions in which a field exists or may be null."""

    def __init__(self, version: int) -> None:
        self.version = version


class Since(VersionRule):
    """The field exists from this version on."""


class Until(VersionRule):
    """The field exists up to and including this version."""


class Nullable(VersionRule):
    """The field may be null from this version on."""


class Tagged(VersionRule):
    """A tagged field (KIP-482), written only if it differs from its default."""

    def __init__(self, tag: int, *, since: int) -> None:
        super().__init__(since)
        self.tag = tag


T = TypeVar("T")

Bool: TypeAlias = Annotated[bool, FixedKind("?", 1)]
Int8: TypeAlias = Annotated[int, FixedKind("b", 1)]
Int16: TypeAlias = Annotated[int, FixedKind("h", 2)]
UInt16: TypeAlias = Annotated[int, FixedKind("H", 2)]
Int32: TypeAlias = Annotated[int, FixedKind("i", 4)]
UInt32: TypeAlias = Annotated[int, FixedKind("I", 4)]
Int64: TypeAlias = Annotated[int, FixedKind("q", 8)]
Float64: TypeAlias = Annotated[float, FixedKind("d", 8)]
Uuid: TypeAlias = Annotated[bytes, FixedKind("16s", 16)]
String: TypeAlias = Annotated[str, StringKind()]
NullableString: TypeAlias = Annotated[str | None, StringKind(), Nullable(0)]
Bytes: TypeAlias = Annotated[bytes, BytesKind()]
NullableBytes: TypeAlias = Annotated[bytes | None, BytesKind(), Nullable(0)]
Buffer: TypeAlias = bytes | bytearray | memoryview
#: Decoded: a list with one view of the frame. Encoded: the buffers one after the other.
RecordBytes: TypeAlias = Annotated[Sequence[Buffer] | None, RecordsKind(), Nullable(0)]
Array = Annotated[list[T], ArrayKind()]
NullableArray = Annotated[list[T] | None, ArrayKind(), Nullable(0)]

ZERO_UUID = bytes(16)
