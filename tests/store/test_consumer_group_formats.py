"""The binary formats of consumer group records, compared with bytes from Kafka's schemas."""

from __future__ import annotations

import struct

import pytest

from partage.coordinator.consumer_group.records import (
    ClassicMemberRecord,
    ClassicProtocolRecord,
    ConsumerGroupRecord,
    ConsumerGroupRecords,
    ConsumerGroupTombstone,
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    MemberAssignmentRecord,
    MemberAssignmentTombstone,
    MemberTargetRecord,
    MemberTargetTombstone,
    ReconciliationState,
    RegularExpressionRecord,
    RegularExpressionTombstone,
    TargetAssignmentRecord,
    TargetAssignmentTombstone,
)
from partage.store.record_formats import decode_record, encode_record
from partage.wire.primitives import MalformedError

T = bytes(range(16))

MEMBER = ConsumerMemberRecord(
    group_id="g",
    member_id="m",
    instance_id="i",
    client_id="c",
    client_host="/h",
    subscribed_topics=("t", "u"),
    rebalance_timeout_ms=5,
    server_assignor="range",
)
CLASSIC = ConsumerMemberRecord(
    group_id="g",
    member_id="m",
    client_id="c",
    client_host="/h",
    subscribed_regex="r.*",
    classic=ClassicMemberRecord(
        session_timeout_ms=7, protocols=(ClassicProtocolRecord("range", b"xy"),)
    ),
)
CURRENT = MemberAssignmentRecord(
    group_id="g",
    member_id="m",
    member_epoch=4,
    previous_member_epoch=3,
    state=ReconciliationState.UNREVOKED_PARTITIONS,
    assigned={T: {0: 2, 1: 4}},
    pending_revocation={T: {5: 3}},
)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (ConsumerGroupRecord(group_id="g", epoch=3), "0003 000167", "0000 00000003 00"),
        (
            ConsumerGroupRecord(group_id="g", epoch=3, metadata_hash=-2),
            "0003 000167",
            "0000 00000003 01 00 08 fffffffffffffffe",
        ),
        (
            MEMBER,
            "0005 000167 00016d",
            "0000 0269 00 0263 032f68 03 0274 0275 01 00000005 0672616e6765 01 00 01 00",
        ),
        (
            CLASSIC,
            "0005 000167 00016d",
            "0000 00 00 0263 032f68 01 04722e2a ffffffff 00"
            "01 00 11 01 00000007 02 0672616e6765 037879 00 00",
        ),
        (
            TargetAssignmentRecord(group_id="g", assignment_epoch=3, assignment_ms=9),
            "0006 000167",
            "0000 00000003 01 00 08 0000000000000009",
        ),
        (
            MemberTargetRecord(group_id="g", member_id="m", partitions={T: (1, 2)}),
            "0007 000167 00016d",
            "0000 02 000102030405060708090a0b0c0d0e0f 03 00000001 00000002 00 00",
        ),
        (
            CURRENT,
            "0008 000167 00016d",
            "0000 00000004 00000003 01"
            "02 000102030405060708090a0b0c0d0e0f 03 00000000 00000001"
            "01 00 09 03 00000002 00000004"
            "02 000102030405060708090a0b0c0d0e0f 02 00000005 01 00 05 02 00000003 00",
        ),
        (
            RegularExpressionRecord(
                group_id="g", regex="r", topics=("t",), version=2, resolved_ms=9
            ),
            "0010 000167 000172",
            "0000 02 0274 0000000000000002 0000000000000009 00",
        ),
        (ConsumerGroupTombstone(group_id="g"), "0003 000167", None),
        (ConsumerMemberTombstone(group_id="g", member_id="m"), "0005 000167 00016d", None),
        (TargetAssignmentTombstone(group_id="g"), "0006 000167", None),
        (MemberTargetTombstone(group_id="g", member_id="m"), "0007 000167 00016d", None),
        (MemberAssignmentTombstone(group_id="g", member_id="m"), "0008 000167 00016d", None),
        (RegularExpressionTombstone(group_id="g", regex="r"), "0010 000167 000172", None),
    ],
)
def test_record_has_kafkas_bytes(record: ConsumerGroupRecords, key: str, value: str | None) -> None:
    encoded_key, encoded_value = encode_record(record)
    assert encoded_key.hex() == key.replace(" ", "")
    assert (None if encoded_value is None else encoded_value.hex()) == (
        None if value is None else value.replace(" ", "")
    )
    assert decode_record(encoded_key, encoded_value) == record


def test_member_without_the_field_of_classic_members_is_no_classic_member() -> None:
    """Earlier versions left the field out. To Kafka this is a classic member without protocols."""
    key, _ = encode_record(MEMBER)
    value = "0000 0269 00 0263 032f68 03 0274 0275 00 00000005 0672616e6765 00"
    assert decode_record(key, bytes.fromhex(value)) == MEMBER


def test_assignment_without_epochs_gets_that_of_the_member() -> None:
    """Kafka before 4.3 stores none."""
    key, _ = encode_record(CURRENT)
    value = bytes.fromhex(
        "0000 00000004 00000003 00 02 000102030405060708090a0b0c0d0e0f 02 00000001 00 01 00"
    )
    record = decode_record(key, value)
    assert isinstance(record, MemberAssignmentRecord)
    assert record.assigned == {T: {1: 4}}


def test_unknown_state_of_a_member_is_read_as_unknown() -> None:
    key, _ = encode_record(CURRENT)
    record = decode_record(key, bytes.fromhex("0000 00000004 00000003 63 01 01 00"))
    assert isinstance(record, MemberAssignmentRecord)
    assert record.state is ReconciliationState.UNKNOWN


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x00\x00", struct.pack(">h", 1) + bytes(40)])
def test_damaged_value_raises_malformed(value: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_record(encode_record(ConsumerGroupRecord(group_id="g", epoch=1))[0], value)


def test_different_numbers_of_partitions_and_epochs_raise_malformed() -> None:
    key, _ = encode_record(CURRENT)
    value = bytes.fromhex(
        "0000 00000004 00000003 0002 000102030405060708090a0b0c0d0e0f 02 00000001 01 00 01 01 01 00"
    )
    with pytest.raises(MalformedError, match="1 partitions have 0 assignment epochs"):
        decode_record(key, value)
