"""Targets of the fuzzer.

In each case a target creates valid input, damages it in several ways, and reports the result of
each try.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final, Protocol

import psutil

from broker.raw_client import RawClient
from broker.requests import batch, create, fetch, metadata, produce, produce_request, values
from fuzz.corruption import damaged, reframed
from partage.coordinator.records import (
    GroupRecord,
    GroupTombstone,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
)
from partage.store.record_formats import decode_record, encode_record
from partage.testing import ThreadedBroker
from partage.wire.apis.produce import PRODUCE
from partage.wire.consumer_protocol import (
    Assignment,
    ConsumerTopicPartitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from partage.wire.frames import encode_request_frame
from partage.wire.primitives import MalformedError
from partage.wire.records import plain
from wire.random_messages import CASES, random_message
from wire.records import corruption as batches
from wire.records.batch_factory import log, marker, sealed_log

#: Tries per case. Creating the input takes longer than trying it.
WAYS: Final = 10


class Target(Protocol):
    """A parser of untrusted bytes."""

    def try_one(self, rng: Random) -> list[str]:
        """Run a case; return the result of each try as a word. Any exception is a finding."""
        ...


class Messages:
    """Requests and responses of all APIs and versions: decoded, or `MalformedError`."""

    def try_one(self, rng: Random) -> list[str]:
        case = rng.choice(CASES)
        content = case.encode(random_message(case, rng))
        return [_read(lambda: case.decode(damaged(rng, content))) for _ in range(WAYS)]


class Batches:
    """Logs of record batches: the compiled and the plain decoder must agree."""

    def __init__(self) -> None:
        from partage.wire.records import _native

        self._both = [_native, plain]

    def try_one(self, rng: Random) -> list[str]:
        blob = log(rng, rng.choice((1, 2, 3)), codecs=rng.choice(((0,), (0, 1, 2, 3, 4))))
        if rng.random() < 0.2:
            blob += marker(1, rng.randrange(2), 1000)
        return [self._try(rng, blob) for _ in range(WAYS)]

    def _try(self, rng: Random, blob: bytes) -> str:
        blob = batches.damaged(rng, blob)
        if rng.random() < 0.9:
            blob = sealed_log(blob)
        found = batches.agree(self._both, blob, verify_crc=rng.random() < 0.5)
        return "malformed" if found is MalformedError else "read"


class Stored:
    """Keys and values of ``__consumer_offsets``, subscriptions and assignments."""

    def try_one(self, rng: Random) -> list[str]:
        key, value = encode_record(_record(rng))
        subscription, assignment = _subscription(rng), _assignment(rng)
        reads: tuple[Callable[[], object], ...] = (
            lambda: decode_record(
                damaged(rng, key), None if value is None else damaged(rng, value)
            ),
            lambda: decode_subscription(damaged(rng, subscription)),
            lambda: decode_assignment(damaged(rng, assignment)),
        )
        return [_read(rng.choice(reads)) for _ in range(WAYS)]


def _read(read: Callable[[], object]) -> str:
    try:
        read()
    except MalformedError:
        return "malformed"
    return "read"


def _record(rng: Random) -> GroupRecord | GroupTombstone | OffsetRecord | OffsetTombstone:
    match rng.randrange(5):
        case 0:
            return GroupTombstone(group_id="g")
        case 1:
            return OffsetTombstone(group_id="g", topic="t", partition=rng.randrange(9))
        case 2:
            return OffsetRecord(
                group_id="g", topic="t", partition=0, offset=7, metadata="m", commit_ms=9
            )
    members = tuple(
        MemberRecord(
            member_id=f"m{n}",
            instance_id=rng.choice((None, "i")),
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=1,
            session_timeout_ms=1,
            subscription=_subscription(rng),
            assignment=_assignment(rng),
        )
        for n in range(rng.randrange(3))
    )
    return GroupRecord(
        group_id="g",
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m0",
        since_ms=5,
        awaiting_sync=rng.random() < 0.5,
        members=members,
    )


def _subscription(rng: Random) -> bytes:
    owned = [ConsumerTopicPartitions(topic="t", partitions=[0, 1])]
    return encode_subscription(
        Subscription(topics=["t", "u"], user_data=b"x", owned_partitions=owned),
        rng.randrange(4),
    )


def _assignment(rng: Random) -> bytes:
    partitions = [ConsumerTopicPartitions(topic="t", partitions=[0, 1])]
    return encode_assignment(Assignment(assigned_partitions=partitions), rng.randrange(4))


_CHECK_EVERY = 10
_GROWTH_MAX_BYTES = 512 << 20


class Frames:
    """Requests to a running broker: it must stay up, lose nothing and report no internal error."""

    def __init__(self, broker: ThreadedBroker) -> None:
        self._servers = broker.bootstrap_servers
        self._faults: list[str] = []
        self._cases = 0
        self._kept = [b"%d" % n for n in range(10)]
        with RawClient(self._servers) as raw:
            create(raw, "kept")
            create(raw, "topic-1", 2)
            produce(raw, "kept", batch(*self._kept))
        self._memory = psutil.Process().memory_info().rss

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Frames]:
        """Open a target with a separate broker."""
        with ThreadedBroker() as broker:
            target = cls(broker)
            watch = Faults(target._faults)
            logger = logging.getLogger("partage")
            logger.addHandler(watch)
            try:
                yield target
            finally:
                logger.removeHandler(watch)

    def try_one(self, rng: Random) -> list[str]:
        self._cases += 1
        outcomes = [self._exchanged(content) for content in frames(rng)]
        if self._cases % _CHECK_EVERY == 0:
            self._check()
        assert not self._faults, self._faults
        return outcomes

    def _exchanged(self, content: bytes) -> str:
        host, _, port = self._servers.rpartition(":")
        with socket.create_connection((host, int(port))) as client:
            client.settimeout(0.01)  # some requests wait, which is correct
            try:
                client.sendall(content)
                return "answered" if client.recv(1 << 16) else "closed"
            except ConnectionError:
                return "closed"
            except TimeoutError:
                return "waits"

    def _check(self) -> None:
        with RawClient(self._servers, timeout_s=30) as raw:
            assert metadata(raw, "kept").topics[0].error_code == 0
            assert values(*fetch(raw, "kept")) == self._kept
        growth = psutil.Process().memory_info().rss - self._memory
        assert growth < _GROWTH_MAX_BYTES, f"the process has grown by {growth >> 20} MB"


class Faults(logging.Handler):
    """Collects exceptions that the broker logged."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__()
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._faults.append(logging.Formatter().format(record))


_REQUESTS = [case for case in CASES if case.side == "request"]


def frames(rng: Random) -> Iterator[bytes]:
    """Return the bytes of several connections: a damaged request, sometimes with more after it."""
    sound = [request(rng) for _ in range(rng.choice((1, 1, 3)))]
    for _ in range(WAYS):
        yield b"".join(reframed(rng, damaged(rng, one)) for one in sound)


def request(rng: Random) -> bytes:
    """Return a valid request without its length; a quarter of them contain records."""
    if rng.random() < 0.25:
        case = rng.choice([c for c in _REQUESTS if c.api is PRODUCE])
        blob = sealed_log(batches.damaged(rng, log(rng, rng.choice((1, 1, 2)))))
        message = produce_request(
            "topic-1", blob, partition=rng.randrange(3), acks=rng.choice((0, 1))
        )
    else:
        case = rng.choice(_REQUESTS)
        message = random_message(case, rng)
    body = case.api.encode_request(case.version, message)
    return b"".join(encode_request_frame(case.api, case.version, rng.randrange(9), "fuzz", body))[
        4:
    ]
