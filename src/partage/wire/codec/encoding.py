"""Generator of the encoder of one message in one version."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from partage.wire.codec.layout import TEXT_MAX, FieldLayout, MessageLayout, message_layout
from partage.wire.codec.source_builder import SourceBuilder
from partage.wire.primitives import SMALL_UVARINTS, encode_uvarint
from partage.wire.types import (
    ArrayKind,
    BytesKind,
    FieldKind,
    FixedKind,
    Message,
    RecordsKind,
    StringKind,
)


class EncoderGenerator:
    """Generates the source of an encoder from a message layout."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.src = SourceBuilder(
            small=SMALL_UVARINTS,
            uvarint=encode_uvarint,
            text_length=_text_length,
            i16=_packer(">h"),
            i32=_packer(">i"),
            array_of=_pack_array,
            join=b"".join,
        )

    def message(self, cls: type[Message]) -> str:
        self.src.add("parts = []")
        self.src.add("w = parts.append")
        self.structure(cls, "msg")
        return self.src.text("def encode(msg):", "return parts")

    def structure(self, cls: type[Message], var: str) -> None:
        shape = message_layout(cls, self.version, self.flexible)
        run: list[tuple[str, FixedKind]] = []
        for field in shape.fields:
            value = f"{var}.{field.name}"
            if isinstance(field.kind, FixedKind) and not field.nullable:
                run.append((value, field.kind))
                continue
            self.flush(run)
            self.value(field, value)
        self.flush(run)
        if self.flexible:
            self.tags(shape, var)

    def flush(self, run: list[tuple[str, FixedKind]]) -> None:
        if not run:
            return
        pack = self.src.bind("pack", _packer(">" + "".join(kind.fmt for _, kind in run)))
        self.src.add(f"w({pack}({', '.join(value for value, _ in run)}))")
        run.clear()

    def length(self, size: str, wide: bool) -> None:
        if self.flexible:
            long = f"uvarint({size} + 1)" if wide else f"text_length({size})"
            self.src.add(f"w(small[{size} + 1] if {size} < 127 else {long})")
        else:
            self.src.add(f"w({'i32' if wide else 'i16'}({size}))")

    def null(self, wide: bool) -> None:
        if self.flexible:
            self.src.add("w(small[0])")
        else:
            self.src.add(f"w({'i32' if wide else 'i16'}(-1))")

    def value(self, field: FieldLayout, value: str) -> None:
        src = self.src
        held = src.unique_name("v")
        src.add(f"{held} = {value}")
        if type(field.kind) is FieldKind:
            self.nested(field, held)
            return
        if not field.nullable:
            self.present(field.kind, field, held)
            return
        src.add(f"if {held} is None:")
        src.depth += 1
        self.null(wide=not isinstance(field.kind, StringKind))
        src.depth -= 1
        src.add("else:")
        src.depth += 1
        self.present(field.kind, field, held)
        src.depth -= 1

    def present(self, kind: FieldKind, field: FieldLayout, held: str) -> None:
        src = self.src
        match kind:
            case StringKind():
                raw, size = src.unique_name("b"), src.unique_name("n")
                src.add(f"{raw} = {held}.encode(); {size} = len({raw})")
                self.length(size, wide=False)
                src.add(f"w({raw})")
            case BytesKind():
                size = src.unique_name("n")
                src.add(f"{size} = len({held})")
                self.length(size, wide=True)
                src.add(f"w({held})")
            case RecordsKind():
                size = src.unique_name("n")
                src.add(f"{size} = 0")
                src.add(f"for chunk in {held}: {size} += len(chunk)")
                self.length(size, wide=True)
                src.add(f"parts += {held}")
            case ArrayKind():
                self.array(field, held)

    def array(self, field: FieldLayout, held: str) -> None:
        src = self.src
        size = src.unique_name("n")
        src.add(f"{size} = len({held})")
        self.length(size, wide=True)
        if isinstance(field.element, FixedKind):
            src.add(f"w(array_of({field.element.fmt!r}, {held}))")
            return
        item = src.unique_name("e")
        src.add(f"for {item} in {held}:")
        src.depth += 1
        if field.struct is not None:
            self.structure(field.struct, item)
        else:
            assert field.element is not None
            self.present(field.element, field, item)
        if src.lines[-1].endswith(":"):
            src.add("pass")
        src.depth -= 1

    def nested(self, field: FieldLayout, held: str) -> None:
        assert field.struct is not None
        if not field.nullable:
            self.structure(field.struct, held)
            return
        # A tagged field begins with an unsigned number instead of a signed byte.
        null = b"\xff" if field.tag is None else b"\x00"
        self.src.add(f"if {held} is None: w({null!r})")
        self.src.add("else:")
        self.src.depth += 1
        self.src.add("w(b'\\x01')")
        self.structure(field.struct, held)
        self.src.depth -= 1

    def tags(self, shape: MessageLayout, var: str) -> None:
        src = self.src
        if not shape.tagged:
            src.add("w(small[0])")
            return
        given = [f"{var}.{f.name} != {src.bind('default', f.default)}" for f in shape.tagged]
        count, outer = src.unique_name("n"), src.unique_name("outer")
        src.add(f"{count} = {' + '.join(f'({test})' for test in given)}")
        src.add(f"w(small[{count}])")
        src.add(f"if {count}:")
        src.depth += 1
        for field, test in zip(shape.tagged, given, strict=True):
            src.add(f"if {test}:")
            src.depth += 1
            src.add(f"{outer} = parts; parts = []; w = parts.append")
            if isinstance(field.kind, FixedKind):
                self.flush([(f"{var}.{field.name}", field.kind)])
            else:
                self.value(field, f"{var}.{field.name}")
            body = src.unique_name("b")
            src.add(f"{body} = join(parts); parts = {outer}; w = parts.append")
            src.add(f"w(uvarint({field.tag})); w(uvarint(len({body}))); w({body})")
            src.depth -= 1
        src.depth -= 1


def _text_length(size: int) -> bytes:
    if size > TEXT_MAX:
        raise struct.error(f"a string of {size} bytes exceeds the limit of {TEXT_MAX}")
    return encode_uvarint(size + 1)


def _pack_array(fmt: str, values: list[Any]) -> bytes:
    if fmt == "16s":
        return b"".join(values)
    return struct.pack(f">{len(values)}{fmt}", *values)


@cache
def _packer(fmt: str) -> Callable[..., bytes]:
    return struct.Struct(fmt).pack
