"""Kafka's formats of ``__consumer_offsets`` as other implementations encode and decode them.

``MADE_BY_KAFKA`` has bytes that the classes of Apache Kafka 4.4 wrote. `Format` uses kafka-python's
interpreter of message definitions; kafka-python has no definitions of these messages, so they are
here.
"""

from __future__ import annotations

import io
import struct
import warnings
from typing import Any, Final

with warnings.catch_warnings():
    # kafka-python reads its definitions through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.data_container import DataContainer
    from kafka.protocol.schemas.fields import StructField

Declared = tuple[str, str, str] | tuple[str, str, str, str]


class Format:
    """A key or value: its fields as name, type and versions; a type with ``?`` is nullable.

    The version of a key is its type.
    """

    def __init__(
        self, name: str, versions: str, flexible: str, *fields: Declared, **structs: Any
    ) -> None:
        declared = [_declared(field, structs) for field in fields]
        self._struct = StructField(
            {"name": name, "type": "data", "validVersions": versions, "fields": declared}
        )
        self._struct.set_data_class(type(name, (DataContainer,), {"_struct": self._struct}))
        self._flexible = StructField.parse_versions(flexible)

    def encode(self, version: int, values: dict[str, Any]) -> bytes:
        flexible = self._is_flexible(version)
        body = self._struct.encode(values, version=version, compact=flexible, tagged=flexible)
        return struct.pack(">h", version) + bytes(body)

    def decode(self, data: bytes) -> tuple[int, dict[str, Any], dict[str, bytes]]:
        """Return the version, the fields, and the unknown tagged fields."""
        (version,) = struct.unpack_from(">h", data)
        flexible = self._is_flexible(version)
        rest = io.BytesIO(data[2:])
        held = self._struct.decode(rest, version=version, compact=flexible, tagged=flexible)
        assert rest.read() == b""
        return version, _plain(held, version), held.unknown_tags or {}

    def _is_flexible(self, version: int) -> bool:
        low, high = self._flexible
        return bool(low <= version <= high)


def _declared(field: Declared, structs: dict[str, Any]) -> dict[str, Any]:
    name, kind, versions = field[:3]
    declared: dict[str, Any] = {"name": name, "type": kind.rstrip("?"), "versions": versions}
    if kind.endswith("?"):
        declared["nullableVersions"] = versions
    if len(field) == 4:
        declared["default"] = field[3]
    inner = structs.get(kind.removeprefix("[]"))
    if inner is not None:
        declared["fields"] = [_declared(each, structs) for each in inner]
    return declared


def _plain(held: Any, version: int) -> dict[str, Any]:
    values = {}
    for field in held._struct.fields.values():
        if field.for_version_q(version):
            value = getattr(held, field.name)
            if field.is_struct_array():
                value = [_plain(item, version) for item in value]
            values[field.name] = value
    return values


OFFSET_KEY: Final = Format(
    "OffsetCommitKey",
    "0-1",
    "none",
    ("group", "string", "0+"),
    ("topic", "string", "0+"),
    ("partition", "int32", "0+"),
)
OFFSET_VALUE: Final = Format(
    "OffsetCommitValue",
    "0-4",
    "4+",
    ("offset", "int64", "0+"),
    ("leaderEpoch", "int32", "3+", "-1"),
    ("metadata", "string", "0+"),
    ("commitTimestamp", "int64", "0+"),
    ("expireTimestamp", "int64", "1", "-1"),
)
GROUP_KEY: Final = Format("GroupMetadataKey", "2", "none", ("group", "string", "0+"))
GROUP_VALUE: Final = Format(
    "GroupMetadataValue",
    "0-4",
    "4+",
    ("protocolType", "string", "0+"),
    ("generation", "int32", "0+"),
    ("protocol", "string?", "0+"),
    ("leader", "string?", "0+"),
    ("currentStateTimestamp", "int64", "2+", "-1"),
    ("members", "[]MemberMetadata", "0+"),
    MemberMetadata=(
        ("memberId", "string", "0+"),
        ("groupInstanceId", "string?", "3+", "null"),
        ("clientId", "string", "0+"),
        ("clientHost", "string", "0+"),
        ("rebalanceTimeout", "int32", "1+", "-1"),
        ("sessionTimeout", "int32", "0+"),
        ("subscription", "bytes", "0+"),
        ("assignment", "bytes", "0+"),
    ),
)

#: The bytes by type of value and version; the last offset has a topic id in a tagged field.
MADE_BY_KAFKA: Final = {
    "offset key": {1: "000100076772c3b6c39f6500017400000007"},
    "offset": {
        0: "00000000011f71fb04cb00096e6f74697a20e298830000018bcfe5687b",
        1: "00010000011f71fb04cb00096e6f74697a20e298830000018bcfe5687b0000018bcfee903b",
        2: "00020000011f71fb04cb00096e6f74697a20e298830000018bcfe5687b",
        3: "00030000011f71fb04cb0000000500096e6f74697a20e298830000018bcfe5687b",
        4: (
            "00040000011f71fb04cb000000050a6e6f74697a20e298830000018bcfe5687b"
            "01001000000000000000010000000000000002"
        ),
    },
    "group key": {2: "000200076772c3b6c39f65"},
    "group": {
        0: (
            "00000008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d31000163"
            "000a2f3132372e302e302e31000027100000000300010200000002030400036d2d32000000042f3a"
            "3a31000017700000000000000000"
        ),
        1: (
            "00010008636f6e73756d657200000003000572616e676500036d2d310000000200036d2d31000163"
            "000a2f3132372e302e302e310000ea60000027100000000300010200000002030400036d2d320000"
            "00042f3a3a3100007530000017700000000000000000"
        ),
        2: (
            "00020008636f6e73756d657200000003000572616e676500036d2d310000018bcfe5687b00000002"
            "00036d2d31000163000a2f3132372e302e302e310000ea6000002710000000030001020000000203"
            "0400036d2d32000000042f3a3a3100007530000017700000000000000000"
        ),
        3: (
            "00030008636f6e73756d657200000003000572616e676500036d2d310000018bcfe5687b00000002"
            "00036d2d31000169000163000a2f3132372e302e302e310000ea6000002710000000030001020000"
            "0002030400036d2d32ffff000000042f3a3a3100007530000017700000000000000000"
        ),
        4: (
            "000409636f6e73756d6572000000030672616e6765046d2d310000018bcfe5687b03046d2d310269"
            "02630b2f3132372e302e302e310000ea60000027100400010203030400046d2d320001052f3a3a31"
            "000075300000177001010000"
        ),
    },
    "empty group": {
        0: "0000000000000004ffffffff00000000",
        1: "0001000000000004ffffffff00000000",
        2: "0002000000000004ffffffff0000018bcfe5687b00000000",
        3: "0003000000000004ffffffff0000018bcfe5687b00000000",
        4: "0004010000000400000000018bcfe5687b0100",
    },
}
