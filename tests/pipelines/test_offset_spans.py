"""Sets of offsets, compared with Python's sets."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.pipelines.offset_spans import OffsetSpan, OffsetSpans, OverlapError

SPAN = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda of: OffsetSpan(of[0], sum(of)))


def offsets(spans):
    return {offset for span in spans for offset in range(*span)}


@given(st.lists(SPAN, max_size=30), SPAN)
def test_spans_equal_a_set_of_offsets(given, asked):
    spans, truth = OffsetSpans(), set()
    for span in given:
        new = offsets([span])
        if new & truth:
            with pytest.raises(OverlapError):
                spans.add(span)
        else:
            spans.add(span)
            truth |= new
        assert offsets(spans) == truth
        assert len(spans) == len(truth)
        assert spans.end == max(truth, default=-1) + 1
    kept = list(spans)
    # Sorted, and adjacent spans are merged.
    assert all(before.end < after.first for before, after in pairwise(kept))
    missing = spans.missing(asked)
    assert offsets(missing) == offsets([asked]) - truth
    assert all(len(span) > 0 for span in missing)
    assert missing == sorted(missing)


def test_overlapping_span_is_rejected_without_change():
    spans = OffsetSpans([OffsetSpan(0, 10), OffsetSpan(20, 30)])
    for span in (
        OffsetSpan(9, 11),
        OffsetSpan(5, 25),
        OffsetSpan(15, 21),
        OffsetSpan(0, 40),
        OffsetSpan(22, 23),
    ):
        with pytest.raises(OverlapError, match="already in the set"):
            spans.add(span)
    spans.add(OffsetSpan(10, 20))
    assert list(spans) == [OffsetSpan(0, 30)]
