"""The user data is byte-compatible with Kafka's and with other clients."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from aiokafka.structs import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import reference_assignors
from partage.assignors import CooperativeSticky
from partage.assignors.user_data import (
    StickyDecoder,
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)

partitions = st.lists(st.integers(0, 2**31 - 1), unique=True, min_size=1, max_size=4)
owned = st.dictionaries(st.text(min_size=1, max_size=5), partitions, max_size=4)
generations = st.integers(-1, 2**31 - 1)

#: Encoded with Java's schema: an array of (string, array of int32), then an int32.
BYTES = (
    b"\0\0\0\2"
    b"\0\1a" + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\5"
    b"\0\2bb" + b"\0\0\0\1" + b"\0\0\0\3"
)  # fmt: skip


def test_version_1_has_generation():
    assert encode_sticky({"a": [0, 5], "bb": [3]}, 9) == BYTES + b"\0\0\0\x09"
    assert decode_sticky(BYTES + b"\0\0\0\x09") == (9, {"a": [0, 5], "bb": [3]})


def test_version_0_has_no_generation():
    assert decode_sticky(BYTES) == (-1, {"a": [0, 5], "bb": [3]})


@given(st.binary(max_size=40))
def test_invalid_user_data_is_ignored(data):
    generation, claimed = decode_sticky(data)
    assert generation >= -(2**31)
    assert isinstance(claimed, dict)


def test_truncated_user_data_is_ignored():
    assert decode_sticky(BYTES[:-1]) == (-1, {})
    assert decode_sticky(b"") == (-1, {})


@st.composite
def damaged_data(draw):
    """Draw user data of several members, some of it cut, extended or with changed bytes."""
    told = []
    for _ in range(draw(st.integers(1, 4))):
        data = bytearray(encode_sticky(draw(owned), draw(generations)))
        for _ in range(draw(st.integers(0, 2))):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([0, 1, 2, 97, 255]))
        data = data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data
        told.append(bytes(data) + draw(st.sampled_from([b"", b"\0", b"\0\0\0\1"])))
    return told


def as_lists(claim):
    return claim.generation, {topic: list(partitions) for topic, partitions in claim.owned.items()}


@settings(max_examples=500)
@given(damaged_data())
def test_decoder_of_group_equals_general_decoder(told):
    decoder = StickyDecoder()
    for data in told * 2:
        assert as_lists(decoder.decode(data)) == as_lists(decode_sticky(data))


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\2" + b"\0\1a\0\0\0\1\0\0\0\5" + b"\0\1a\0\0\0\1\0\0\0\6" + b"\0\0\0\1",
        b"\xff\xff\xff\xff" + b"\0\0\0\1",
        b"\0\0\0\1" + b"\0\1a\xff\xff\xff\xff" + b"\0\0\0\1",
        b"\0\0\0\1" + b"\0\1\xff\0\0\0\0" + b"\0\0\0\1",
        b"\0\0\0\1" + b"\1\1" + b"a" * 257 + b"\0\0\0\0" + b"\0\0\0\1",
        b"\0\1" + encode_sticky({"a": [0]}, 3),
        encode_sticky({"a": []}, 3),
        encode_sticky({}, 3),
    ],
    ids=["twice", "null", "null-count", "no-utf-8", "long-name", "kafka-python", "empty", "none"],
)
def test_decoder_of_group_leaves_unusual_data_to_general_decoder(data):
    decoder = StickyDecoder()
    for _ in range(2):
        assert as_lists(decoder.decode(data)) == as_lists(decode_sticky(data))


@given(owned, generations)
def test_user_data_is_compatible_with_aiokafka(owned, generation):
    theirs = StickyAssignorUserDataV1(list(owned.items()), generation).encode()
    assert encode_sticky(owned, generation) == theirs
    assert decode_sticky(theirs) == (generation, owned)


@given(owned, generations)
def test_kafka_python_version_prefix_is_skipped(owned, generation):
    subscription = reference_assignors.STICKY["kafka-python"].StickyPartitionAssignor._metadata(
        [], [TopicPartition(name, p) for name, ps in owned.items() for p in ps], generation
    )
    theirs = subscription.user_data.encode()
    assert theirs == b"\0\1" + encode_sticky(owned, generation)
    assert decode_sticky(theirs) == (generation, owned)


@given(generations)
def test_generation_is_encoded_in_four_bytes(generation):
    assert encode_generation(generation) == generation.to_bytes(4, "big", signed=True)
    assert decode_generation(encode_generation(generation)) == generation


def test_missing_generation_decodes_to_minus_one():
    assert decode_generation(b"") == decode_generation(b"\0\0\0") == -1
    assignor = CooperativeSticky()
    assert assignor.user_data(["a"], {}, 3) == b"\xff\xff\xff\xff"
    assignor.on_assignment({"a": [1]}, 3)
    assert assignor.user_data(["a"], {}, 3) == b"\0\0\0\3"
