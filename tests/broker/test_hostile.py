"""Invalid bytes from clients: the connection is closed, one line is logged, other clients are
served.

Each Kafka vulnerability about frames, allocation or decompression is named at its test. A
follower's fetch (CVE-2018-1288) is in ``test_fetch``, telemetry (CVE-2026-111073) in
``test_cluster``, and the decoders alone are in ``tests/wire``.
"""

from __future__ import annotations

import struct
import threading
import time

import pytest

from partage.wire.apis import APIS
from partage.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from partage.wire.apis.create_topics import CREATE_TOPICS
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.heartbeat import HEARTBEAT
from partage.wire.apis.incremental_alter_configs import SET
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupProtocol
from partage.wire.apis.leave_group import LEAVE_GROUP, LeaveGroupMember, LeaveGroupRequest
from partage.wire.apis.list_offsets import LIST_OFFSETS
from partage.wire.apis.metadata import METADATA, MetadataRequest
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.produce import PRODUCE
from partage.wire.primitives import encode_uvarint
from polled_conditions import eventually

from . import config_requests
from .group_requests import commit, join, join_request
from .peak_memory import PeakMemory
from .raw_client import RawClient
from .requests import (
    LAST_VERSION_BY_NAME,
    batch,
    create,
    fetch,
    fetch_request,
    metadata,
    offset_range,
    produce,
    produce_request,
    produce_result,
    values,
)

HUGE = b"\xff\xff\xff\xff\x07"  # 2**31 - 1 as a varint
MB = 1 << 20


@pytest.fixture
def hostile(broker):
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def lines(caplog):
    """Return the log lines about closed connections."""

    def found() -> list[str]:
        said = [r.getMessage() for r in caplog.records if r.name.startswith("partage.broker")]
        return [text for text in said if "closed the connection" in text]

    return found


def header(api_key: int, version: int, *, flexible: bool = False) -> bytes:
    """Return a request header with an empty client id."""
    return struct.pack(">hhih", api_key, version, 1, 0) + (b"\x00" if flexible else b"")


def framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


def is_unharmed(raw: RawClient) -> bool:
    began = time.monotonic()
    assert metadata(raw).brokers
    return time.monotonic() - began < 2


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 100 * MB + 1, 2**31 - 1])
def test_invalid_frame_length_closes_connection(hostile, raw, lines, size):
    """CVE-2022-34917: a claimed size must not be allocated."""
    with PeakMemory() as peak:
        hostile.send_bytes(struct.pack(">i", size))
        assert hostile.is_closed()
    assert peak.bytes < MB
    (line,) = lines()
    assert f"request size is {size} bytes" in line
    assert is_unharmed(raw)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "security.protocol to PLAINTEXT"),
    ],
)
def test_other_protocol_is_named_once_in_the_log(broker, hostile, lines, text, reason):
    hostile.send_bytes(text)
    assert hostile.is_closed()
    with RawClient(broker.bootstrap_servers) as again:
        again.send_bytes(text)
        assert again.is_closed()
    (line,) = lines()
    assert reason in line


def test_claimed_size_allocates_only_received_bytes(broker, raw):
    """CVE-2022-34917: clients that claim 100 MB each and send little of it."""
    clients = [RawClient(broker.bootstrap_servers) for _ in range(20)]
    with PeakMemory() as peak:
        for client in clients:
            client.send_bytes(struct.pack(">i", 100 * MB) + header(0, 9) + bytes(1000))
        assert is_unharmed(raw)
    assert peak.bytes < 20 * (MB + 100_000)
    for client in clients:
        client.close()


@pytest.mark.partage_broker(
    {"queued.max.request.bytes": "8000000", "socket.request.max.bytes": "4000000"}
)
def test_large_requests_share_a_memory_limit(broker, raw):
    """Requests that do not fit wait for others; small requests are still served."""
    create(raw, "t")
    pool = broker.broker.server.resources.memory_pool
    clients = [RawClient(broker.bootstrap_servers) for _ in range(6)]
    # Two frames that are nearly complete take most of the memory; four more cannot even begin.
    for client in clients:
        client.send_bytes(struct.pack(">i", 3_900_000) + header(3, 1) + bytes(3_000_000))
        is_unharmed(raw)
    assert pool.has_waiters
    assert 0 <= pool.available_bytes < 3_900_000
    with RawClient(broker.bootstrap_servers) as late:
        late.send(PRODUCE, produce_request("t", batch(b"x" * 450_000)))
        assert late.is_silent()
        for client in clients:
            client.close()
        assert produce_result(late.receive()).base_offset == 0
    eventually(lambda: (pool.available_bytes, pool.has_waiters) == (8_000_000, False))


@pytest.mark.partage_broker(
    {"queued.max.request.bytes": "8000000", "socket.request.max.bytes": "4000000"}
)
def test_large_requests_do_not_deadlock(broker, raw):
    """All begin at the same time, and no two fit together at their full size."""
    create(raw, "t")
    pool = broker.broker.server.resources.memory_pool
    clients = [RawClient(broker.bootstrap_servers, timeout_s=20) for _ in range(12)]
    batches = [batch(bytes([65 + n]) * 450_000) for n in range(4)]
    frames = [c.frame(PRODUCE, produce_request("t", *batches)) for c in clients]
    senders = [
        threading.Thread(target=client.send_bytes, args=(frame,))
        for client, frame in zip(clients, frames, strict=True)
    ]
    for sender in senders:
        sender.start()
    for client in clients:
        assert client.receive_frame()
        client.close()
    for sender in senders:
        sender.join()
    assert offset_range(raw, "t") == (0, 48)
    eventually(lambda: (pool.available_bytes, pool.has_waiters) == (8_000_000, False))


@pytest.mark.partage_broker(
    {
        "connections.max.idle.ms": "300",
        "queued.max.request.bytes": "2000000",
        "socket.request.max.bytes": "2000000",
    }
)
@pytest.mark.parametrize("sent", [1_500_000, 2_000_000])
def test_stalled_large_request_is_closed(broker, raw, sent):
    """A request with all memory, partly or completely sent, behind a fetch that never ends."""
    create(raw, "t")
    keeper = RawClient(broker.bootstrap_servers)
    keeper.send(
        FETCH, fetch_request("t", max_wait_ms=2**31 - 1, min_bytes=1 << 30), LAST_VERSION_BY_NAME
    )
    frame = struct.pack(">i", 2_000_000) + header(PRODUCE.key, PRODUCE.version_max)
    keeper.send_bytes(frame + bytes(4 + sent - len(frame)))
    eventually(lambda: broker.broker.server.resources.memory_pool.available_bytes == 0)
    with RawClient(broker.bootstrap_servers) as other:
        assert produce(other, "t", batch(b"x" * 100_000)).base_offset == 0
    assert keeper.is_closed()
    keeper.close()


def test_group_requests_have_a_lower_size_limit(hostile, lines):
    request = join_request("g", "m" * 1000)
    request.protocols[0].metadata = bytes(17 * MB)
    hostile.send(JOIN_GROUP, request)
    assert hostile.is_closed()
    (line,) = lines()
    assert "JoinGroup request has" in line


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (0, 2),
        (0, 13),
        (1, 3),
        (1, 18),
        (9, 11),
        (4, 0),
        (71, 0),
        (999, 0),
        (-1, 0),
        (3, -1),
    ],
)
def test_unknown_api_or_version_closes_connection(hostile, raw, lines, key, version):
    hostile.send_bytes(framed(header(key, version) + bytes(20)))
    assert hostile.is_closed()
    (line,) = lines()
    assert f"version {version} is not supported" in line
    assert is_unharmed(raw)


@pytest.mark.parametrize("request_bytes", [b"\x00", b"\x00\x03\x00\x01\x00\x00\x00"])
def test_request_shorter_than_header(hostile, lines, request_bytes):
    hostile.send_bytes(framed(request_bytes))
    assert hostile.is_closed()
    assert "too short for a header" in lines()[0]


@pytest.mark.parametrize("length", [1, 1000, 32767])
def test_client_id_longer_than_frame(hostile, lines, length):
    hostile.send_bytes(framed(struct.pack(">hhih", 3, 1, 1, length)))
    assert hostile.is_closed()
    assert f"the client id declares {length} bytes" in lines()[0]


def test_client_id_invalid_utf8(hostile, lines):
    hostile.send_bytes(framed(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe" + bytes(4)))
    assert hostile.is_closed()
    assert "not valid UTF-8" in lines()[0]


@pytest.mark.parametrize("count", [b"\x41", b"\x7f", b"\xff\x01", HUGE, b"\xff" * 12])
def test_header_with_many_tags_is_refused(hostile, raw, lines, count):
    """CVE-2026-111115: millions of objects from the tags of a request header."""
    request = struct.pack(">hhih", 12, 4, 1, 0) + count + b"\x00\x00" * 2_000_000
    hostile.send_bytes(framed(API_REQUEST))  # the first request compiles its decoder
    hostile.receive_frame()
    with PeakMemory() as peak:
        hostile.send_bytes(framed(request))
        assert hostile.is_closed()
    assert peak.bytes < 3 * len(request) + MB
    assert "tagged fields" in lines()[0]
    assert is_unharmed(raw)


API_REQUEST = struct.pack(">hhih", 18, 0, 1, 0)


def test_unknown_tags_are_skipped(raw):
    """Up to 64, in header and body: newer clients may send more fields."""
    tags = b"\x40" + b"".join(encode_uvarint(100 + n) + b"\x02ab" for n in range(64))
    request = struct.pack(">hhih", 18, 3, 1, 0) + tags + b"\x02a\x02b" + tags
    raw.send_bytes(framed(request))
    answer = API_VERSIONS.decode_response(3, raw.receive_frame(), 4)
    assert answer.error_code == 0


GROUP = b"\x02g"


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (METADATA, 1, struct.pack(">i", 2**31 - 1)),
        (METADATA, 1, struct.pack(">i", -2)),
        (METADATA, 12, HUGE),
        (METADATA, 12, b"\x03" + bytes(16) + b"\x00\x00"),
        (HEARTBEAT, 4, b"\x00" + bytes(20)),
        (HEARTBEAT, 4, HUGE + b"x" * 100),
        (HEARTBEAT, 4, b"\x80" * 9),
        (HEARTBEAT, 4, GROUP + bytes(4) + b"\x02m\x00" + b"\x41" + bytes(200)),
        (HEARTBEAT, 4, GROUP + bytes(4) + b"\x02m\x00" + b"\x01\x05" + HUGE),
        (HEARTBEAT, 0, b"\x7f\xffg"),
        (HEARTBEAT, 0, b"\xff\xff" + bytes(10)),
        (HEARTBEAT, 0, b"\x00\x02\xff\xfe" + bytes(10)),
        (OFFSET_COMMIT, 8, b"\x02g" + bytes(4) + b"\x01\x00" + HUGE),
        (LIST_OFFSETS, 1, struct.pack(">ii", -1, 1) + b"\x00\x01t" + struct.pack(">i", 2**30)),
        (CREATE_TOPICS, 5, HUGE),
        (JOIN_GROUP, 6, b"\x02g" + bytes(8) + b"\x01\x00\x02c\x02\x02p" + HUGE),
        (FETCH, 12, bytes(12) + b"\x00" + bytes(8) + HUGE),
        (PRODUCE, 9, b"\x00" + bytes(6) + b"\x02\x02t\x02" + bytes(4) + HUGE),
        (PRODUCE, 3, b""),
    ],
)
def test_malformed_body_closes_connection(hostile, raw, lines, api, version, body):
    """CVE-2026-111108 and similar: counts, lengths and varints are checked first."""
    hostile.request(API_VERSIONS, ApiVersionsRequest(), 0)
    with PeakMemory() as peak:
        hostile.send_bytes(
            framed(header(api.key, version, flexible=api.is_flexible(version)) + body)
        )
        assert hostile.is_closed()
    assert peak.bytes < MB
    assert len(lines()) == 1
    assert is_unharmed(raw)


@pytest.mark.parametrize("api", [a for k, a in APIS.items() if k not in (17, 18, 36)], ids=repr)
def test_frame_of_zeros_or_ones(broker, raw, api):
    """Another client is served whatever the result is, and no handler fails."""
    for filling in (b"\x00", b"\x01", b"\xff", b"\x7f"):
        for version in (api.version_min, api.version_max):
            with RawClient(broker.bootstrap_servers) as other:
                start = header(api.key, version, flexible=api.is_flexible(version))
                other.send_bytes(framed(start + filling * 200))
                other.is_closed(0.01)
    assert is_unharmed(raw)


def test_request_with_many_structures_memory_is_limited(hostile, raw):
    """Six bytes on the wire can take 400 in memory: a 6 MB request once took 430 MB."""
    head = header(0, 8) + struct.pack(">hhii", -1, -1, 0, 1) + b"\x00\x01t"
    frame = framed(head + struct.pack(">i", 700_000) + struct.pack(">ii", 0, -1) * 700_000)
    with PeakMemory() as peak:
        hostile.send_bytes(frame)
        assert hostile.is_closed()
    assert peak.bytes < 3 * len(frame) + MB
    assert is_unharmed(raw)


def test_many_requests_with_many_structures(broker, raw):
    """As many requests as one client can have in flight."""
    create(raw, "t")
    count = 1_900
    body = struct.pack(">hhii", -1, -1, 0, 1) + b"\x00\x01t" + struct.pack(">i", count)
    frame = framed(header(0, 8) + body + (struct.pack(">ii", 9, 61) + bytes(61)) * count)
    with RawClient(broker.bootstrap_servers) as hostile, PeakMemory() as peak:
        for _ in range(15):
            hostile.send_bytes(frame)
            if not hostile.is_silent(0.001):
                hostile.receive_frame()
    assert peak.bytes < 12 * MB
    assert is_unharmed(raw)


def test_pipelined_fetch_responses_are_not_collected(broker, raw):
    """4,000 fetches fit into one read; their responses must not all be created first."""
    create(raw, "t")
    for _ in range(4):
        produce(raw, "t", batch(b"x" * 450_000))
    body = struct.pack(">iiiibiii", -1, 0, 0, 1 << 30, 0, 0, -1, 1) + b"\x00\x01t"
    body += struct.pack(">iiiqqi", 1, 0, -1, 0, -1, 1 << 30) + bytes(4) + b"\x00\x00"
    with (
        RawClient(broker.bootstrap_servers, receive_buffer_bytes=4096) as hostile,
        PeakMemory() as peak,
    ):
        hostile.send_bytes(framed(header(1, 11) + body) * 2000)
        assert is_unharmed(raw)
    assert peak.bytes < 40 * MB


def test_malformed_request_affects_no_other_request(broker, raw, hostile):
    """Nor earlier requests of the same client."""
    create(raw, "t")
    good = hostile.frame(PRODUCE, produce_request("t", batch(b"kept")))
    hostile.send_bytes(good + framed(header(3, 1) + struct.pack(">i", 99)))
    hostile.is_closed()
    assert values(*fetch(raw, "t")) == [b"kept"]


def test_hundreds_of_hostile_clients(broker, raw, lines):
    create(raw, "t")
    for n in range(300):
        with RawClient(broker.bootstrap_servers) as one:
            one.send_bytes(framed(header(n % 70, n % 9) + bytes(n)))
    for n in range(50):
        raw.request(METADATA, MetadataRequest(topics=[]))
        assert produce(raw, "t", batch(b"x")).base_offset == n
    assert len(lines()) <= 300


def test_texts_of_clients_forge_no_log_lines(broker, caplog):
    """The fixture `no_faults` checks that each message is one line."""
    text = "g\nERROR forged\x1b[2J"
    with RawClient(broker.bootstrap_servers, client_id=text) as hostile:
        options = {"reason": text, "group_instance_id": text, "protocol_type": text}
        protocols = [JoinGroupProtocol(name=text, metadata=b"m")]
        joined = join(hostile, text, protocols=protocols, **options)
        leaving = LeaveGroupMember(member_id=joined.member_id, group_instance_id=text, reason=text)
        hostile.request(LEAVE_GROUP, LeaveGroupRequest(group_id=text, members=[leaving]))
        commit(hostile, text, "t", 1)
        change = (SET, "consumer.session.timeout.ms", "50000")
        assert config_requests.alter(hostile, change, name=text, kind=config_requests.GROUP) == 0
        for kind in (config_requests.TOPIC, config_requests.BROKER, config_requests.GROUP):
            refused = config_requests.alter(hostile, (SET, text, text), name=text, kind=kind)
            assert refused != 0
        client_id = text.encode()
        hostile.send_bytes(framed(struct.pack(">hhih", 3, 999, 1, len(client_id)) + client_id))
        assert hostile.is_closed()
    log = "\n".join(record.getMessage() for record in caplog.records)
    assert r"group g\nERROR forged\x1b[2J generation 1: " in log
    assert r"altered configs: resource=group:g\nERROR forged\x1b[2J" in log
