"""Two other implementations of the protocol, behind one interface.

Both sides are compared in the form of `random_messages.plain`: dicts with our field names. kio's
names differ only in the unit: ``throttle_time`` for our ``throttle_time_ms``.
"""

from __future__ import annotations

import io
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, get_args, get_origin

import kio.index
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from partage.wire.apis.common import OPERATIONS_OMITTED
from partage.wire.codec.layout import FieldLayout, message_layout
from partage.wire.types import ZERO_UUID, Message

from .random_messages import Case, plain

with warnings.catch_warnings():
    # kafka-python reads its definitions through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl
    from kafka.protocol.schemas.fields.codecs.types import UUID, BitField, Bytes

#: Fields that no other implementation knows, and their empty values.
OURS: dict[str, Any] = {"assignment_error": None, "protocol_version": -1}


def without_ours(values: Any) -> Any:
    """Return the values, at any depth, without the fields that no other implementation knows."""
    match values:
        case dict():
            return {k: without_ours(v) for k, v in values.items() if k not in OURS}
        case list():
            return [without_ours(value) for value in values]
    return values


def with_nothing_of_ours(values: Any) -> Any:
    """Return the values, at any depth, with these fields empty."""
    match values:
        case dict():
            return {k: OURS[k] if k in OURS else with_nothing_of_ours(v) for k, v in values.items()}
        case list():
            return [with_nothing_of_ours(value) for value in values]
    return values


class Oracle(Protocol):
    """Another implementation."""

    def covers(self, case: Case) -> bool: ...

    def flexible(self, case: Case) -> bool: ...

    def spare(self, case: Case, values: dict[str, Any]) -> None:
        """Replace, in place, values that this implementation cannot read."""

    def decode(self, case: Case, frame: bytes) -> dict[str, Any]: ...

    def encode(self, case: Case, values: dict[str, Any]) -> bytes: ...


def _fields(cls: type[Message] | None, case: Case) -> list[FieldLayout]:
    assert cls is not None
    shape = message_layout(cls, case.version, case.flexible)
    return [field for field in (*shape.fields, *shape.tagged) if field.name not in OURS]


def _same_names(ours: list[FieldLayout], theirs: dict[str, Any], what: object) -> None:
    mine = {field.name.removesuffix("_ms") for field in ours}
    assert mine == set(theirs), f"{what}: {mine ^ set(theirs)}"


class Kio:
    """https://pypi.org/project/kio/: one dataclass per message and version."""

    def entity(self, case: Case) -> Any:
        load = (
            kio.index.load_request_schema
            if case.side == "request"
            else kio.index.load_response_schema
        )
        return load(case.api.key, case.version)

    def covers(self, case: Case) -> bool:
        try:
            self.entity(case)
        except (kio.index.UnknownAPIKey, kio.index.UnknownEntity):
            return False
        return True

    def flexible(self, case: Case) -> bool:
        return bool(self.entity(case).__flexible__)

    def spare(self, case: Case, values: dict[str, Any]) -> None:
        if (case.api.name, case.side) == ("DescribeTransactions", "response"):
            for state in values["transaction_states"]:  # its type of this field excludes -1
                state["transaction_start_time_ms"] = max(state["transaction_start_time_ms"], 0)

    def decode(self, case: Case, frame: bytes) -> dict[str, Any]:
        entity, size = entity_reader(self.entity(case))(frame, 0)
        assert size == len(frame)
        return self._from(case.cls, case, entity)

    def encode(self, case: Case, values: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        entity_writer(self.entity(case))(out, self._to(case.cls, case, self.entity(case), values))
        return out.getvalue()

    def _matched(
        self, cls: type[Message] | None, case: Case, theirs: Any
    ) -> list[tuple[FieldLayout, Any]]:
        by_name = {f.name.removesuffix("_ms"): f for f in dataclass_fields(theirs)}
        ours = _fields(cls, case)
        _same_names(ours, by_name, theirs)
        return [(field, by_name[field.name.removesuffix("_ms")]) for field in ours]

    def _from(self, cls: type[Message] | None, case: Case, entity: Any) -> dict[str, Any]:
        return {
            ours.name: self._value_from(ours, case, theirs, getattr(entity, theirs.name))
            for ours, theirs in self._matched(cls, case, type(entity))
        }

    def _value_from(self, ours: FieldLayout, case: Case, theirs: Any, value: Any) -> Any:
        if isinstance(value, tuple):
            if ours.struct is not None:
                return [self._from(ours.struct, case, item) for item in value]
            return list(value)
        if ours.struct is not None:
            return None if value is None else self._from(ours.struct, case, value)
        match theirs.metadata["kafka_type"]:
            case "timedelta_i32" | "timedelta_i64":
                return round(value / timedelta(milliseconds=1))
            case "datetime_i64":
                return -1 if value is None else round(value.timestamp() * 1000)
            case "error_code":
                return int(value)
            case "uuid":
                return ZERO_UUID if value is None else value.bytes
        return value

    def _to(self, cls: type[Message], case: Case, entity: Any, values: dict[str, Any]) -> Any:
        return entity(
            **{
                theirs.name: self._value_to(ours, case, theirs, values[ours.name])
                for ours, theirs in self._matched(cls, case, entity)
            }
        )

    def _value_to(self, ours: FieldLayout, case: Case, theirs: Any, value: Any) -> Any:
        if value is None:
            return None
        if ours.struct is not None:
            nested = _dataclass_in(theirs.type)
            if isinstance(value, list):
                return tuple(self._to(ours.struct, case, nested, item) for item in value)
            return self._to(ours.struct, case, nested, value)
        if isinstance(value, list):
            return tuple(value)
        match theirs.metadata["kafka_type"]:
            case "timedelta_i32" | "timedelta_i64":
                return timedelta(milliseconds=value)
            case "datetime_i64":
                return None if value == -1 else datetime.fromtimestamp(value / 1000, UTC)
            case "error_code":
                return ErrorCode(value)
            case "uuid":
                return None if value == ZERO_UUID else uuid.UUID(bytes=value)
        return value


def _dataclass_in(hint: Any) -> Any:
    """Return dataclass ``X`` of ``X``, ``X | None``, ``tuple[X, ...]`` or its optional form."""
    if get_origin(hint) is None:
        return hint
    return next(
        found
        for arg in get_args(hint)
        if arg is not Ellipsis and is_dataclass(found := _dataclass_in(arg))
    )


class KafkaPython:
    """https://pypi.org/project/kafka-python/: classes that interpret Kafka's own definitions."""

    MODULES = (
        kafka.protocol.admin,
        kafka.protocol.consumer,
        kafka.protocol.metadata,
        kafka.protocol.producer,
        kafka.protocol.sasl,
    )
    #: It shortens these two names.
    RENAMED = {
        "cluster_authorized_operations": "authorized_operations",
        "topic_authorized_operations": "authorized_operations",
    }

    def entity(self, case: Case) -> Any:
        name = f"{case.api.name}{case.side.capitalize()}"
        return next((getattr(m, name) for m in self.MODULES if hasattr(m, name)), None)

    def covers(self, case: Case) -> bool:
        entity = self.entity(case)
        if entity is None:
            return False
        low, high = entity.valid_versions
        return bool(low <= case.version <= high)

    def flexible(self, case: Case) -> bool:
        return bool(self.entity(case).flexible_version_q(case.version))

    def spare(self, case: Case, values: dict[str, Any]) -> None:
        if (case.api.name, case.side) == ("ApiVersions", "response"):
            values["error_code"] = 0  # with an error, it reads v0 in any requested version

    def decode(self, case: Case, frame: bytes) -> dict[str, Any]:
        return self._from(case.cls, case, self.entity(case).decode(frame, version=case.version))

    def encode(self, case: Case, values: dict[str, Any]) -> bytes:
        entity = self.entity(case)
        made = self._to(case.cls, case, entity._struct, entity, values)
        made.API_VERSION = case.version
        return bytes(made.encode())

    def _matched(
        self, cls: type[Message] | None, case: Case, struct: Any
    ) -> list[tuple[FieldLayout, Any]]:
        version = case.version
        by_name = {
            f.name.removesuffix("_ms"): f
            for f in struct.fields.values()
            if f.for_version_q(version)
        }
        ours = _fields(cls, case)
        pairs = []
        for field in ours:
            name = field.name.removesuffix("_ms")
            theirs = by_name.get(name) or by_name[self.RENAMED[name]]
            pairs.append((field, theirs))
        assert len({f.name for _, f in pairs}) == len(by_name), f"{struct}: {by_name.keys()}"
        return pairs

    def _from(self, cls: type[Message] | None, case: Case, entity: Any) -> dict[str, Any]:
        return {
            ours.name: self._value_from(ours, case, theirs, getattr(entity, theirs.name))
            for ours, theirs in self._matched(cls, case, entity._struct)
        }

    def _value_from(self, ours: FieldLayout, case: Case, theirs: Any, value: Any) -> Any:
        if theirs.is_struct_array():
            if value is None:
                return None
            return [self._from(ours.struct, case, item) for item in value]
        if theirs.is_struct():
            if value is None:  # also an absent tagged structure
                absent = ours.tag is not None
                return plain(ours.default, case.version, case.flexible) if absent else None
            return self._from(ours.struct, case, value)
        if theirs.is_array():
            return None if value is None else list(value)
        if theirs._type is UUID:
            return ZERO_UUID if value is None else value.bytes
        if theirs._type is BitField:
            bits = {31} if value is None else value
            raw = sum(1 << bit for bit in bits)
            return raw - (1 << 32) if raw >> 31 else raw
        if theirs._type is Bytes and value is not None:
            return bytes(value)
        return value

    def _to(
        self, cls: type[Message] | None, case: Case, struct: Any, make: Any, values: dict[str, Any]
    ) -> Any:
        return make(
            version=case.version,
            **{
                theirs.name: self._value_to(ours, case, theirs, values[ours.name])
                for ours, theirs in self._matched(cls, case, struct)
            },
        )

    def _value_to(self, ours: FieldLayout, case: Case, theirs: Any, value: Any) -> Any:
        if value is None:
            return None
        if theirs.is_struct_array():
            make = theirs.data_class
            return [self._to(ours.struct, case, make._struct, make, item) for item in value]
        if theirs.is_struct():
            if ours.tag is not None and value == plain(ours.default, case.version, case.flexible):
                return None
            return self._to(ours.struct, case, theirs, theirs.data_class, value)
        if theirs.is_array():
            return value
        if theirs._type is UUID:
            return None if value == ZERO_UUID else uuid.UUID(bytes=value)
        if theirs._type is BitField:
            return {bit for bit in range(32) if value >> bit & 1}
        return value

    def declared(self, case: Case) -> Iterator[tuple[str, type[Message], FieldLayout, Any]]:
        """Yield each of our fields with Kafka's definition of it, which this package bundles."""
        yield from self._declared(case.cls, case, self.entity(case)._struct, "")

    def _declared(
        self, cls: type[Message], case: Case, struct: Any, where: str
    ) -> Iterator[tuple[str, type[Message], FieldLayout, Any]]:
        for ours, theirs in self._matched(cls, case, struct):
            path = f"{where}.{ours.name}"
            yield path, cls, ours, theirs
            if ours.struct is not None:
                yield from self._declared(ours.struct, case, theirs, path)

    def default(self, field: Any) -> Any:
        """Return Kafka's default; authorized operations are a bit set here, None if omitted."""
        omitted = getattr(field, "_type", None) is BitField and field.default is None
        return OPERATIONS_OMITTED if omitted else field.default
