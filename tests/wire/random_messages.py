"""Random messages of every declared kind, the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from random import Random
from typing import Any, Literal, NamedTuple

from partage.wire.api import AnyApi
from partage.wire.apis import APIS
from partage.wire.codec.layout import FieldLayout, message_layout
from partage.wire.types import (
    ArrayKind,
    BytesKind,
    FieldKind,
    FixedKind,
    Message,
    RecordsKind,
    StringKind,
)

Side = Literal["request", "response"]

TEXTS = ("", "a", "topic-1", "größe", "\N{SNOWMAN}\N{GRINNING FACE}", "x" * 127, "é" * 100)
#: Kafka's error codes that both other implementations know.
ERROR_CODES = (-1, 0, 3, 14, 15, 16, 22, 25, 27, 35, 79, 82)
ARRAY_SIZES = (0, 1, 1, 2, 3)


class Case(NamedTuple):
    """One message type in one version."""

    api: AnyApi
    version: int
    side: Side

    def __str__(self) -> str:
        return f"{self.api.name}-v{self.version}-{self.side}"

    @property
    def cls(self) -> type[Message]:
        return self.api.request if self.side == "request" else self.api.response

    @property
    def flexible(self) -> bool:
        return self.api.is_flexible(self.version)

    def encode(self, message: Message) -> bytes:
        if self.side == "request":
            return b"".join(self.api.encode_request(self.version, message))
        return b"".join(self.api.encode_response(self.version, message))

    def decode(self, frame: bytes) -> Message:
        decode = self.api.decode_request if self.side == "request" else self.api.decode_response
        message: Message = decode(self.version, frame)
        return message

    def rng(self, purpose: str) -> Random:
        return Random(f"{self} {purpose}")


def cases() -> Iterator[Case]:
    for api in APIS.values():
        for version in range(api.version_min, api.version_max + 1):
            yield Case(api, version, "request")
            yield Case(api, version, "response")


def _message(case: Case) -> tuple[int, str]:
    return case.api.key, case.side


CASES = list(cases())
#: The cases of one message together. One test per group takes a sixth of the time of one per case.
BY_MESSAGE = [list(group) for _, group in groupby(sorted(CASES, key=_message), key=_message)]
NEWEST = [case for case in CASES if case.version == case.api.version_max]


class MessageFactory:
    """Creates random messages.

    ``tame`` restricts them to values that the other implementations support: known error codes, and
    timestamps in whole seconds (kio uses ``datetime``).
    """

    def __init__(self, rng: Random, *, tame: bool = False) -> None:
        self.rng = rng
        self.tame = tame

    def message(self, cls: type[Message], version: int, flexible: bool) -> Message:
        shape = message_layout(cls, version, flexible)
        values = {field.name: self.value(field, version, flexible) for field in shape.fields}
        for field in shape.tagged:
            if self.rng.random() < 0.5:
                values[field.name] = self.value(field, version, flexible)
        return cls(**values)

    def value(self, field: FieldLayout, version: int, flexible: bool) -> Any:
        if field.nullable and self.rng.random() < 0.25:
            return None
        if isinstance(field.kind, ArrayKind):
            if field.struct is not None:
                count = self.rng.choice(ARRAY_SIZES)
                return [self.message(field.struct, version, flexible) for _ in range(count)]
            assert field.element is not None
            count = self.rng.choice((*ARRAY_SIZES, 130))
            return [self.scalar(field.element, field.name) for _ in range(count)]
        if field.struct is not None:
            return self.message(field.struct, version, flexible)
        return self.scalar(field.kind, field.name)

    def scalar(self, kind: FieldKind, name: str) -> Any:
        rng = self.rng
        match kind:
            case FixedKind(fmt="?"):
                return rng.random() < 0.5
            case FixedKind(fmt="16s"):
                return rng.choice((bytes(16), rng.randbytes(16)))
            case FixedKind(fmt="d"):
                return rng.choice((0.0, -1.5, 1e300, rng.random()))
            case FixedKind():
                return self.number(kind, name)
            case StringKind():
                return rng.choice(TEXTS)
            case BytesKind():
                return rng.randbytes(rng.choice((0, 1, 5, 200)))
            case RecordsKind():
                return [rng.randbytes(rng.choice((0, 1, 5, 200)))]
        raise AssertionError(kind)

    def number(self, kind: FixedKind, name: str) -> int:
        rng = self.rng
        if self.tame and name.endswith("error_code"):
            return rng.choice(ERROR_CODES)
        if self.tame and name.endswith("_ms") and kind.size == 8:
            return rng.choice((-1, 0, 1000 * rng.randrange(2**32)))
        bits = 8 * kind.size
        low = 0 if kind.fmt.isupper() else -(1 << bits - 1)
        high = low + (1 << bits) - 1
        return rng.choice((low, high, 0, 1, 7, rng.randint(low, high)))


def random_message(case: Case, rng: Random, *, tame: bool = False) -> Message:
    return MessageFactory(rng, tame=tame).message(case.cls, case.version, case.flexible)


def plain(message: Message, version: int, flexible: bool) -> dict[str, Any]:
    """Return the fields on the wire in ``version`` as dicts, lists and scalars."""
    shape = message_layout(type(message), version, flexible)
    return {
        field.name: _plain_value(field, getattr(message, field.name), version, flexible)
        for field in (*shape.fields, *shape.tagged)
    }


def _plain_value(field: FieldLayout, value: Any, version: int, flexible: bool) -> Any:
    if value is None:
        return None
    if isinstance(field.kind, RecordsKind):
        return b"".join(value)
    if isinstance(field.kind, ArrayKind) and field.struct is not None:
        return [plain(item, version, flexible) for item in value]
    if field.struct is not None:
        return plain(value, version, flexible)
    return value


def made(values: dict[str, Any], cls: type[Message], version: int, flexible: bool) -> Message:
    """Return the message that `plain` was made of."""
    shape = message_layout(cls, version, flexible)
    return cls(
        **{
            field.name: _made_value(field, values[field.name], version, flexible)
            for field in (*shape.fields, *shape.tagged)
        }
    )


def _made_value(field: FieldLayout, value: Any, version: int, flexible: bool) -> Any:
    if value is None:
        return None
    if isinstance(field.kind, RecordsKind):
        return [value]
    if isinstance(field.kind, ArrayKind) and field.struct is not None:
        return [made(item, field.struct, version, flexible) for item in value]
    if field.struct is not None:
        return made(value, field.struct, version, flexible)
    return value
