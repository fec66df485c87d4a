"""The committed offset is the minimum of the replicas, whichever member commits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partage.recipes.replicas import decode_metadata, encode_commit, merge_position


class Shown:
    """A partition's committed offset, as several members commit it."""

    def __init__(self):
        self.offset, self.metadata = 0, ""

    def by(self, name, generation, position, hears_others=True):
        said = merge_position(
            decode_metadata(self.metadata), name, generation, position, hears_others=hears_others
        )
        self.offset, self.metadata = encode_commit(said)
        return self.offset


def test_lowest_position_is_committed():
    shown = Shown()
    assert shown.by("a", 1, 10) == 10
    assert shown.by("b", 1, 4) == 4
    assert shown.by("a", 1, 20) == 4
    assert shown.by("b", 1, 30) == 20


def test_lost_replica_counts_during_grace_period():
    shown = Shown()
    shown.by("a", 1, 10)
    shown.by("b", 1, 4)
    assert shown.by("a", 2, 12) == 4
    assert shown.by("a", 2, 15, hears_others=False) == 15
    assert shown.by("c", 2, 0) == 0
    assert shown.by("a", 2, 15, hears_others=False) == 0


def test_member_of_older_generation_keeps_others():
    shown = Shown()
    shown.by("b", 3, 7)
    assert shown.by("a", 2, 9, hears_others=False) == 7


def test_foreign_metadata_is_ignored():
    for metadata in ("", "note", "[1]", '{"a":1}', '{"a":[1]}', "\ud800"):
        assert decode_metadata(metadata) == {}


def test_metadata_stays_within_kafka_limit():
    shown = Shown()
    for number in range(200):
        shown.by(f"{number:08x}", 2**31 - 1, 2**62 - number)
    assert len(shown.metadata) <= 4096
    assert shown.offset == 2**62 - 199


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 100)), min_size=1)
)
def test_offset_is_minimum_of_last_positions(steps):
    shown, last = Shown(), {}
    for name, generation, position in steps:
        last[name] = position
        assert shown.by(name, generation, position) == min(last.values())
