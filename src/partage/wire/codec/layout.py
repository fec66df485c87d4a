"""The wire layout of a message in one version, derived from its annotations."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from partage.wire.types import (
    ArrayKind,
    BytesKind,
    FieldKind,
    FixedKind,
    Message,
    Nullable,
    RecordsKind,
    Since,
    StringKind,
    Tagged,
    Until,
)

#: The most bytes in a string: the range of 16 bits, which Kafka keeps in flexible versions too.
TEXT_MAX: Final = 0x7FFF


class FieldLayout(NamedTuple):
    """One field of a message in one version."""

    name: str
    kind: FieldKind
    struct: type[Message] | None  # set if the field, or the array's element, is a structure
    element: FieldKind | None
    nullable: bool
    tag: int | None
    default: Any


class MessageLayout(NamedTuple):
    """The fields of a message that exist in one version."""

    cls: type[Message]
    flexible: bool
    fields: tuple[FieldLayout, ...]
    tagged: tuple[FieldLayout, ...]


@cache
def message_layout(cls: type[Message], version: int, flexible: bool) -> MessageLayout:
    """Return the layout of ``cls`` in ``version``.

    Raises:
        TypeError: An annotation has no kind, or a field that this version lacks has no default.
    """
    hints = get_type_hints(cls, include_extras=True)
    plain, tagged = [], []
    for info in msgspec.structs.fields(cls):
        try:
            field = _field(info, hints[info.name], version)
        except StopIteration:
            raise TypeError(f"{cls.__name__}.{info.name}: no kind in its annotation") from None
        if field is None:
            if info.required:
                raise TypeError(f"{cls.__name__}.{info.name}: no default for version {version}")
        elif field.tag is None:
            plain.append(field)
        elif flexible:
            tagged.append(field)
    return MessageLayout(
        cls, flexible, tuple(plain), tuple(sorted(tagged, key=lambda f: f.tag or 0))
    )


def _field(info: msgspec.structs.FieldInfo, hint: Any, version: int) -> FieldLayout | None:
    base, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    kind: FieldKind | None = None
    nullable = False
    tag: int | None = None
    for mark in marks:
        match mark:
            case Since() if version < mark.version:
                return None
            case Until() if version > mark.version:
                return None
            case Nullable():
                nullable = version >= mark.version
            case Tagged():
                if version < mark.version:
                    return None
                tag = mark.tag
            case FieldKind():
                kind = mark
    cls: type[Message] | None = None
    element: FieldKind | None = None
    members = [arg for arg in (base, *get_args(base)) if arg is not type(None)]
    if isinstance(kind, ArrayKind):
        wrapped = (
            base
            if get_origin(base) is list
            else next(arg for arg in get_args(base) if get_origin(arg) is list)
        )
        (inner,) = get_args(wrapped)
        if isinstance(inner, type) and issubclass(inner, Message):
            cls = inner
        else:
            element = next(mark for mark in get_args(inner) if isinstance(mark, FieldKind))
    elif kind is None:
        cls = next(arg for arg in members if isinstance(arg, type) and issubclass(arg, Message))
        nullable = type(None) in get_args(base)
        kind = FieldKind()
    default = info.default if info.default is not msgspec.NODEFAULT else None
    if info.default_factory is not msgspec.NODEFAULT:
        default = info.default_factory()
    return FieldLayout(info.name, kind, cls, element, nullable, tag, default)


def size_min(kind: FieldKind, cls: type[Message] | None, version: int, flexible: bool) -> int:
    """Return the smallest encoded size of a value, in bytes. It limits declared counts."""
    match kind:
        case FixedKind():
            return kind.size
        case StringKind():
            return 1 if flexible else 2
        case BytesKind() | RecordsKind() | ArrayKind():
            return 1 if flexible else 4
    assert cls is not None
    shape = message_layout(cls, version, flexible)
    size = sum(
        1
        if f.nullable and type(f.kind) is FieldKind
        else size_min(f.kind, f.struct, version, flexible)
        for f in shape.fields
    )
    return size + (1 if flexible else 0)
