"""Generator of the decoder of one message in one version."""

from __future__ import annotations

import struct
from collections.abc import Callable
from copy import copy
from functools import cache, partial
from typing import Any, Final, NamedTuple

from partage.wire.codec.layout import TEXT_MAX, FieldLayout, MessageLayout, message_layout, size_min
from partage.wire.codec.source_builder import SourceBuilder
from partage.wire.primitives import MalformedError, decode_uvarint
from partage.wire.types import (
    ArrayKind,
    Buffer,
    BytesKind,
    FieldKind,
    FixedKind,
    Message,
    RecordsKind,
    StringKind,
)

TAGS_MAX: Final = 64


class Allowance(NamedTuple):
    """The number of structures and strings that all arrays of a message may hold together.

    A message may hold ``base`` elements, and one more for every ``bytes_per_element`` bytes of its
    size, up to ``elements_max``. An array of numbers counts one element per ``numbers_per_element``
    numbers, or nothing if that is 0. A decoded number takes about ten times its encoded size, and
    the response to it may take more.
    """

    base: int
    bytes_per_element: int
    elements_max: int
    numbers_per_element: int = 2


#: The limit for responses from a broker.
RESPONSE_ALLOWANCE: Final = Allowance(1_000_000, 1, 1_000_000, 0)
#: The limit for requests to a broker. A decoded request then takes a few MB of memory, and its
#: processing delays other clients by a tenth of a second at most. It allows for a topic with 10,000
#: partitions whose assignment is listed explicitly.
REQUEST_ALLOWANCE: Final = Allowance(4_000, 8, 12_000)


class DecoderGenerator:
    """Generates the source of a decoder from a message layout."""

    def __init__(
        self, version: int, flexible: bool, allowance: Allowance = RESPONSE_ALLOWANCE
    ) -> None:
        self.version = version
        self.flexible = flexible
        self.allowance = allowance
        self.src = SourceBuilder(
            view=memoryview,
            long_uvarint=_long_uvarint,
            text_length=_text_length,
            skip_tags=skip_tags,
            too_long=_too_long,
            not_null=_not_null,
            too_many=_too_many,
            Malformed=MalformedError,
        )

    def message(self, cls: type[Message]) -> str:
        self.src.add("end = len(buf)")
        base, bytes_per_element, elements_max, _ = self.allowance
        self.src.add(f"left = min({elements_max}, {base} + (end - pos) // {bytes_per_element})")
        result = self.structure(cls)
        return self.src.text("def decode(buf, pos):", f"return {result}, pos")

    def structure(self, cls: type[Message]) -> str:
        """Emit the decoding of ``cls``; return the name of the variable that holds the result."""
        shape = message_layout(cls, self.version, self.flexible)
        values: list[tuple[str, str]] = []
        run: list[tuple[str, FixedKind]] = []
        for field in shape.fields:
            name = self.src.unique_name("v")
            values.append((field.name, name))
            if isinstance(field.kind, FixedKind) and not field.nullable:
                run.append((name, field.kind))
                continue
            self.flush(run)
            self.value(field, name, f"{cls.__name__}.{field.name}")
        self.flush(run)
        made = self.src.unique_name("m")
        if self.flexible:
            count = self.tag_count()
            if shape.tagged:
                # Without tagged fields in the bytes, the class supplies their defaults.
                self.src.add(f"if not {count}:")
                self.src.depth += 1
                self.make(cls, values, made)
                self.src.depth -= 1
                self.src.add("else:")
                self.src.depth += 1
                self.tags(shape, count, values)
                self.make(cls, values, made)
                self.src.depth -= 1
                return made
            self.src.add(f"if {count}: pos = skip_tags(buf, pos, {count})")
        self.make(cls, values, made)
        return made

    def make(self, cls: type[Message], values: list[tuple[str, str]], made: str) -> None:
        args = ", ".join(f"{field}={name}" for field, name in values)
        self.src.add(f"{made} = {self.src.bind('C', cls)}({args})")

    def flush(self, run: list[tuple[str, FixedKind]]) -> None:
        if not run:
            return
        packer = struct.Struct(">" + "".join(kind.fmt for _, kind in run))
        unpack = self.src.bind("unpack", _unpacker(packer.format))
        names = ", ".join(name for name, _ in run)
        self.src.add(f"{names}, = {unpack}(buf, pos)")
        self.src.add(f"pos += {packer.size}")
        run.clear()

    def length(self, wide: bool) -> str:
        """Emit the reading of a length or count; -1 means null."""
        size = self.src.unique_name("n")
        if self.flexible:
            self.uvarint(size, "long_uvarint" if wide else "text_length")
            self.src.add(f"{size} -= 1")
        else:
            fmt, width = ("i", 4) if wide else ("h", 2)
            unpack = self.src.bind("unpack", _unpacker(f">{fmt}"))
            self.src.add(f"{size}, = {unpack}(buf, pos)")
            self.src.add(f"pos += {width}")
        return size

    def value(self, field: FieldLayout, name: str, what: str) -> None:
        match field.kind:
            case FixedKind():
                self.flush([(name, field.kind)])
            case StringKind() | BytesKind() | RecordsKind():
                self.sized(field.kind, field.nullable, name, what)
            case ArrayKind():
                self.array(field, name, what)
            case _:
                self.nested(field, name, what)

    def sized(self, kind: FieldKind, nullable: bool, name: str, what: str) -> None:
        size = self.length(wide=not isinstance(kind, StringKind))
        src = self.src
        src.add(f"if {size} < 0:")
        if nullable:
            src.add(f"    if {size} != -1: raise too_long({what!r}, {size}, pos, buf)")
            src.add(f"    {name} = None")
        else:
            src.add(f"    raise not_null({what!r}, pos)")
        src.add("else:")
        src.add(f"    if {size} > end - pos: raise too_long({what!r}, {size}, pos, buf)")
        taken = f"buf[pos:pos + {size}]"
        match kind:
            case StringKind():
                src.add(f"    {name} = str({taken}, 'utf-8')")
            case BytesKind():
                src.add(f"    {name} = bytes({taken})")
            case _:
                src.add(f"    {name} = [view(buf)[pos:pos + {size}]]")
        src.add(f"    pos += {size}")

    def array(self, field: FieldLayout, name: str, what: str) -> None:
        count = self.length(wide=True)
        src = self.src
        least = size_min(field.element or FieldKind(), field.struct, self.version, self.flexible)
        src.add(f"if {count} < 0:")
        if field.nullable:
            src.add(f"    if {count} != -1: raise too_long({what!r}, {count}, pos, buf)")
            src.add(f"    {name} = None")
        else:
            src.add(f"    raise not_null({what!r}, pos)")
        src.add("else:")
        src.depth += 1
        src.add(f"if {count} * {least} > end - pos: raise too_long({what!r}, {count}, pos, buf)")
        if isinstance(field.element, FixedKind):
            if self.allowance.numbers_per_element:
                self.count(f"{count} // {self.allowance.numbers_per_element}", what)
            size = field.element.size
            joined = src.bind("array_of", _array_unpacker(field.element.fmt))
            src.add(f"{name} = {joined}(buf, pos, {count})")
            src.add(f"pos += {count} * {size}")
        else:
            self.count(count, what)
            src.add(f"{name} = []")
            src.add(f"for _ in range({count}):")
            src.depth += 1
            if field.struct is not None:
                item = self.structure(field.struct)
            else:
                assert field.element is not None
                item = src.unique_name("v")
                self.sized(field.element, False, item, what)
            src.add(f"{name}.append({item})")
            src.depth -= 1
        src.depth -= 1

    def count(self, elements: str, what: str) -> None:
        self.src.add(f"left -= {elements}")
        self.src.add(f"if left < 0: raise too_many({what!r}, buf)")

    def nested(self, field: FieldLayout, name: str, what: str) -> None:
        assert field.struct is not None
        if not field.nullable:
            self.src.add(f"{name} = {self.structure(field.struct)}")
            return
        mark = self.src.unique_name("n")
        unpack = self.src.bind("unpack", _unpacker(">b"))
        self.src.add(f"{mark}, = {unpack}(buf, pos); pos += 1")
        # A tagged field begins with an unsigned number instead of a signed byte.
        self.src.add(f"if {mark} {'<' if field.tag is None else '<='} 0: {name} = None")
        self.src.add("else:")
        self.src.depth += 1
        self.src.add(f"{name} = {self.structure(field.struct)}")
        self.src.depth -= 1

    def uvarint(self, name: str, long: str = "long_uvarint") -> None:
        self.src.add(f"{name} = buf[pos]; pos += 1")
        self.src.add(f"if {name} > 127: {name}, pos = {long}(buf, pos)")

    def tag_count(self) -> str:
        count = self.src.unique_name("n")
        self.uvarint(count)
        return count

    def tags(self, shape: MessageLayout, count: str, values: list[tuple[str, str]]) -> None:
        src = self.src
        names = {field.name: src.unique_name("v") for field in shape.tagged}
        values.extend(names.items())
        for field in shape.tagged:
            src.add(f"{names[field.name]} = {src.bind('default', partial(copy, field.default))}()")
        src.add(f"if {count} > {TAGS_MAX}: skip_tags(buf, pos, {count})")
        tag, size, stop = src.unique_name("t"), src.unique_name("n"), src.unique_name("stop")
        src.add(f"for _ in range({count}):")
        src.depth += 1
        self.uvarint(tag)
        self.uvarint(size)
        src.add(f"if {size} > end - pos: raise too_long('a tagged field', {size}, pos, buf)")
        src.add(f"{stop} = pos + {size}")
        for field in shape.tagged:
            src.add(f"if {tag} == {field.tag}:")
            src.depth += 1
            self.value(field, names[field.name], f"{shape.cls.__name__}.{field.name}")
            what = f"tagged field {field.name} does not have its declared length"
            src.add(f"if pos != {stop}: raise Malformed({what!r})")
            src.depth -= 1
        src.add(f"pos = {stop}")
        src.depth -= 1


@cache
def _unpacker(fmt: str) -> Callable[[Buffer, int], tuple[Any, ...]]:
    return struct.Struct(fmt).unpack_from


@cache
def _array_unpacker(fmt: str) -> Callable[[Buffer, int, int], list[Any]]:
    def unpack(buf: Buffer, pos: int, count: int) -> list[Any]:
        if fmt == "16s":
            return [bytes(buf[at : at + 16]) for at in range(pos, pos + 16 * count, 16)]
        return list(struct.unpack_from(f">{count}{fmt}", buf, pos))

    return unpack


# Functions that the generated code calls.


def _long_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    return decode_uvarint(buf, pos - 1)


def _text_length(buf: Buffer, pos: int) -> tuple[int, int]:
    size, pos = decode_uvarint(buf, pos - 1)
    if size - 1 > TEXT_MAX:
        raise MalformedError(
            f"a string of {size - 1} bytes at byte {pos} exceeds the limit of {TEXT_MAX}"
        )
    return size, pos


def skip_tags(buf: Buffer, pos: int, count: int) -> int:
    """Skip ``count`` unknown tagged fields; return the position after them."""
    if count > TAGS_MAX:
        raise MalformedError(f"{count} tagged fields at byte {pos} exceed the limit of {TAGS_MAX}")
    for _ in range(count):
        _, pos = decode_uvarint(buf, pos)
        size, pos = decode_uvarint(buf, pos)
        if size > len(buf) - pos:
            raise MalformedError(f"a tagged field at byte {pos} declares {size} bytes")
        pos += size
    return pos


def _too_long(what: str, size: int, pos: int, buf: Buffer) -> MalformedError:
    left = len(buf) - pos
    return MalformedError(f"{what} declares a size of {size} at byte {pos}, {left} bytes are left")


def _not_null(what: str, pos: int) -> MalformedError:
    return MalformedError(f"{what} must not be null (byte {pos})")


def _too_many(what: str, buf: Buffer) -> MalformedError:
    return MalformedError(f"{what}: more elements than allowed in a message of {len(buf)} bytes")
