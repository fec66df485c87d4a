"""Random ids."""

from __future__ import annotations

import os
import uuid

import pytest

from partage.broker.ids import RANDOM_IDS


@pytest.mark.parametrize("variant", range(16))
def test_fresh_id_is_uuid4_of_the_same_bytes(variant: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = bytes([*range(8), variant << 4 | 5, *range(247, 254)])
    monkeypatch.setattr(os, "urandom", lambda size: drawn[:size])
    assert RANDOM_IDS.fresh_id() == str(uuid.UUID(bytes=drawn, version=4))
