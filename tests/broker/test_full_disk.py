"""A full disk: clients get errors, groups are reloaded, and nothing acknowledged is lost.

A limit on the size of files (``ulimit -f``) simulates it: writes beyond it fail with EFBIG.
"""

from __future__ import annotations

import pytest

from partage.model.errors import ErrorCode
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from polled_conditions import eventually

from .broker_command import running_broker
from .group_requests import (
    commit,
    commit_errors,
    commit_request,
    describe_group,
    describe_when_loaded,
    fetch_offsets,
    heartbeat,
    join_and_sync,
)
from .raw_client import RawClient
from .requests import batch, create, fetch, list_offset, produce, values

pytestmark = pytest.mark.slow

FILE_BYTES_MAX = 4 << 20


def test_full_disk_produce_fails_and_acked_records_stay(tmp_path):
    data = tmp_path / "data"
    value, acked = b"x" * 300_000, 0
    with (
        running_broker(data, file_bytes_max=FILE_BYTES_MAX) as broker,
        RawClient(broker.servers) as raw,
    ):
        create(raw, "t", 2)
        while (answer := produce(raw, "t", batch(value))).error_code == 0:
            acked += 1
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert acked > 5
        for result in (produce(raw, "t", batch(b"y")), *fetch(raw, "t"), list_offset(raw, "t")):
            assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(raw, "t", batch(b"elsewhere"), partition=1).error_code == 0
        assert "partition t-0 went offline, a write failed" in broker.log_text()
        # Reopening truncates the torn tail, so a small batch fits.
        assert soon_produced(raw, b"y") == acked
        assert "reopened partition t-0" in broker.log_text()
        assert values(*fetch(raw, "t")) == [value] * acked + [b"y"]
        assert broker.end() == 0
    with running_broker(data) as broker, RawClient(broker.servers) as raw:
        assert values(*fetch(raw, "t")) == [value] * acked + [b"y"]
        assert produce(raw, "t", batch(value)).base_offset == acked + 1


def soon_produced(raw: RawClient, value: bytes) -> int:
    """Send a record until the partition accepts it; return its offset."""

    def stored_offset() -> list[int]:
        answer = produce(raw, "t", batch(value))
        assert answer.error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        return [] if answer.error_code else [answer.base_offset]

    return eventually(stored_offset)[0]


def test_full_disk_failed_commit_reloads_shard(tmp_path):
    data, note = tmp_path / "data", "m" * 4096
    with (
        running_broker(data, file_bytes_max=FILE_BYTES_MAX) as broker,
        RawClient(broker.servers) as raw,
    ):
        create(raw, "t", 100)
        joined = join_and_sync(raw, "g")
        before = describe_group(raw, "g")

        def commit_all(offset: int) -> set[int]:
            everywhere = dict.fromkeys(range(100), offset)
            request = commit_request("g", "t", everywhere, joined, metadata=note)
            return set(commit_errors(raw.request(OFFSET_COMMIT, request)))

        acked = 0
        while (codes := commit_all(acked + 1)) == {0}:
            acked += 1
        assert acked > 2
        assert codes == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert "reloading " in broker.log_text()
        assert describe_when_loaded(raw, "g") == before
        assert heartbeat(raw, "g", joined) == 0
        assert fetch_offsets(raw, "g") == dict.fromkeys((("t", n) for n in range(100)), acked)
        assert broker.end() == 0
    with running_broker(data) as broker, RawClient(broker.servers) as raw:
        assert describe_when_loaded(raw, "g") == before
        assert fetch_offsets(raw, "g")["t", 99] == acked
        assert commit(raw, "g", "t", 7, joined=joined) == 0
