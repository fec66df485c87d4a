"""Durable state after the broker was killed, or its files were damaged."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from partage.model.errors import ErrorCode
from partage.testing import BrokerProcess
from partage.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from partage.wire.apis.incremental_alter_configs import SET
from partage.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest

from .broker_command import run_partage, running_broker
from .config_requests import BROKER, GROUP, alter, config
from .group_requests import (
    commit,
    describe_group,
    describe_when_loaded,
    fetch_offsets,
    heartbeat,
    join,
    join_and_sync,
    sync,
)
from .raw_client import RawClient
from .requests import batch, create, delete, fetch, metadata, offset_range, produce, values

pytestmark = pytest.mark.slow

FIRST_SEGMENT = "t-0/00000000000000000000.log"


@pytest.fixture
def process(partage_broker_process: BrokerProcess) -> BrokerProcess:
    return partage_broker_process


@contextmanager
def connected(process: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(process.bootstrap_servers) as raw:
        yield raw


def restart(process: BrokerProcess) -> None:
    process.kill()
    process.start()


def test_restart_stable_group_continues_without_rebalance(process):
    with connected(process) as raw:
        create(raw, "t")
        joined = join_and_sync(raw, "g")
        assert commit(raw, "g", "t", 42, joined=joined, metadata="here") == 0
        before = describe_group(raw, "g")
    restart(process)
    with connected(process) as raw:
        assert describe_when_loaded(raw, "g") == before
        assert heartbeat(raw, "g", joined) == 0
        assert fetch_offsets(raw, "g") == {("t", 0): 42}
        assert before.group_state == "Stable"
        assert commit(raw, "g", "t", 43, joined=joined) == 0


def test_restart_group_in_sync_phase_continues(process):
    with connected(process) as raw:
        joined = join(raw, "g")
    restart(process)
    with connected(process) as raw:
        assert describe_when_loaded(raw, "g").group_state == "CompletingRebalance"
        assert sync(raw, "g", joined, {joined.member_id: b"all"}) == b"all"
        assert heartbeat(raw, "g", joined) == 0


def test_restart_static_member_keeps_assignment(process):
    with connected(process) as raw:
        joined = join_and_sync(raw, "g", group_instance_id="one")
    restart(process)
    with connected(process) as raw:
        assert describe_when_loaded(raw, "g").group_state == "Stable"
        again = join(raw, "g", group_instance_id="one")
        assert again.generation_id == joined.generation_id
        assert again.member_id != joined.member_id
        assert heartbeat(raw, "g", again) == 0
        assert heartbeat(raw, "g", joined) == ErrorCode.UNKNOWN_MEMBER_ID


def test_restart_deleted_topics_and_offsets_stay_deleted(process):
    with connected(process) as raw:
        create(raw, "t", 3, retention_ms="7000")
        create(raw, "other")
        for topic in ("t", "other"):
            assert commit(raw, "left", topic, 7) == 0
        delete(raw, "other")
        topic_id = metadata(raw, "t").topics[0].topic_id
    restart(process)
    with connected(process) as raw:
        (topic,) = [t for t in metadata(raw).topics if not t.is_internal]
        assert (topic.name, topic.topic_id, len(topic.partitions)) == ("t", topic_id, 3)
        assert config(raw, "retention.ms", name="t").value == "7000"
        assert describe_when_loaded(raw, "left").group_state == "Empty"
        assert fetch_offsets(raw, "left") == {("t", 0): 7}
        create(raw, "other")
        assert offset_range(raw, "other") == (0, 0)


def test_restart_keeps_records_and_deletions(process):
    with connected(process) as raw:
        create(raw, "t")
        for n in range(5):
            assert produce(raw, "t", batch(b"%d" % n)).base_offset == n
        delete_records(raw, "t", 2)
    restart(process)
    with connected(process) as raw:
        assert offset_range(raw, "t") == (2, 5)
        (result,) = fetch(raw, "t", [2])
        assert values(result, 2) == [b"2", b"3", b"4"]
        assert produce(raw, "t", batch(b"5")).base_offset == 5


def test_crash_repeated_batch_is_not_appended_twice(process):
    with connected(process) as raw:
        create(raw, "t")
        init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        first = raw.request(INIT_PRODUCER_ID, init).producer_id
        mine = {"producer_id": first, "producer_epoch": 0}
        for n in range(3):
            assert produce(raw, "t", batch(b"%d" % n, base_sequence=n, **mine)).base_offset == n
    restart(process)
    with connected(process) as raw:
        assert produce(raw, "t", batch(b"2", base_sequence=2, **mine)).base_offset == 2
        gap = produce(raw, "t", batch(b"4", base_sequence=4, **mine))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert produce(raw, "t", batch(b"3", base_sequence=3, **mine)).base_offset == 3
        assert raw.request(INIT_PRODUCER_ID, init).producer_id > first


def test_torn_tail_is_truncated_and_set_aside(process):
    with connected(process) as raw:
        create(raw, "t")
        produce(raw, "t", batch(b"whole"))
    process.kill()
    segment = process.data_dir / FIRST_SEGMENT
    size = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(batch(b"torn")[:-1])
    process.start()
    with connected(process) as raw:
        assert offset_range(raw, "t") == (0, 1)
        assert produce(raw, "t", batch(b"next")).base_offset == 1
    assert (process.data_dir / f"{FIRST_SEGMENT}.torn-{size}").exists()
    assert f"removed {len(batch(b'torn')) - 1} bytes at byte {size}" in process.log_path.read_text()


def test_damaged_middle_is_refused_with_working_advice(process):
    with connected(process) as raw:
        create(raw, "t")
        for n in range(3):
            produce(raw, "t", batch(b"%d" % n))
    process.kill()
    segment = process.data_dir / FIRST_SEGMENT
    size = segment.stat().st_size
    content = bytearray(segment.read_bytes())
    content[2 * size // 3 - 1] ^= 1
    segment.write_bytes(content)

    with pytest.raises(RuntimeError) as refused:
        process.start()
    story = str(refused.value)
    assert f"{FIRST_SEGMENT} is damaged at byte {size // 3}" in story
    advice = shlex.split(story.rpartition(": partage ")[2])
    assert advice[:2] == ["log", "cut"]
    done = run_partage(*advice)
    assert done.returncode == 0, done.stderr
    assert f"removed {size - size // 3} bytes at byte {size // 3}, kept in" in done.stdout
    again = run_partage(*advice, "--json")
    assert json.loads(again.stdout) == {
        "truncations": [
            {
                "path": FIRST_SEGMENT,
                "position": size // 3,
                "length": 0,
                "reason": "truncated by 'partage log cut'",
                "kept_in": None,
            }
        ]
    }

    process.start()
    with connected(process) as raw:
        assert values(*fetch(raw, "t")) == [b"0"]
        assert produce(raw, "t", batch(b"again")).base_offset == 1


def test_log_truncate_invalid_arguments_are_refused(process):
    with connected(process) as raw:
        create(raw, "t")
        produce(raw, "t", batch(b"0"))

    def why_not(path, position):
        ran = run_partage("log", "cut", path, "--at", str(position), "--data-dir", process.data_dir)
        assert (ran.returncode, ran.stdout) == (1, "")
        (line,) = ran.stderr.splitlines()
        return line

    assert f"in use by another broker (process {process.pid})" in why_not(FIRST_SEGMENT, 0)
    process.kill()
    assert "Truncate it at byte" in why_not(FIRST_SEGMENT, 1)
    assert "position 1000000 is outside" in why_not(FIRST_SEGMENT, 10**6)
    assert "does not exist" in why_not("t-0/none.log", 0)
    assert "does not exist" in why_not(FIRST_SEGMENT.replace("t-0", "x-0"), 0)
    process.start()
    with connected(process) as raw:
        assert values(*fetch(raw, "t")) == [b"0"]


def test_log_truncate_creates_no_directory(tmp_path):
    ran = run_partage("log", "cut", FIRST_SEGMENT, "--at", "0", "--data-dir", tmp_path / "none")
    assert ran.returncode == 1
    assert "no such data directory" in ran.stderr
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [("meta.json", "{"), ("topics.json", "{}"), ("producer-ids.json", ""), ("configs.json", "[]")],
)
def test_damaged_small_files_are_refused(tmp_path, name, content):
    with running_broker(tmp_path / "data") as broker:
        broker.end()
    (tmp_path / "data" / name).write_text(content)
    ran = run_partage("broker", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "data")
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert f"{name} cannot be read: " in line
    assert "Restore it from a copy" in line


def delete_records(raw: RawClient, topic: str, offset: int) -> None:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name=topic, partitions=[asked])]
    raw.request(DELETE_RECORDS, DeleteRecordsRequest(topics=topics, timeout_ms=1000))


def test_altered_broker_and_group_configs_survive_kill(process):
    with connected(process) as raw:
        create(raw, "t")
        changes = (SET, "message.max.bytes", "100")
        assert alter(raw, changes, name="1", kind=BROKER) == 0
        assert alter(raw, (SET, "log.retention.ms", "5"), name="", kind=BROKER) == 0
        changes = (SET, "consumer.session.timeout.ms", "50000")
        assert alter(raw, changes, name="tower", kind=GROUP) == 0
    restart(process)
    with connected(process) as raw:
        assert produce(raw, "t", batch(b"x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert config(raw, "retention.ms").value == "5"
        entry = config(raw, "consumer.session.timeout.ms", name="tower", kind=GROUP)
        assert (entry.value, entry.config_source) == ("50000", 8)
