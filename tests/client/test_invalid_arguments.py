"""Wrong arguments of public functions and classes: each raises an error that says what to write.

Each case is a call and a pattern of the message. No error is one of Python's own classes: those
come from an internal function that fails for a reason which the user cannot know.
"""

from __future__ import annotations

import asyncio
import datetime
import inspect
import re
import sys

import pytest

import partage
import partage.sync
from partage import OffsetAndMetadata, RebalanceListener, TopicPartition, assignors
from partage.client.consumer.arguments import to_offsets
from partage.recipes import (
    Connector,
    LeaderElection,
    Processor,
    RedundantIndexer,
    Task,
    WorkerPool,
)
from partage.recipes import sync as sync_recipes
from partage.recipes.search import search, searchable_partitions
from partage.spark import drop_duplicates, install_commit_listener
from partage.testing import BrokerProcess, ThreadedBroker

SERVERS = "127.0.0.1:1"
T0 = ("flights", 0)
MILLISECONDS = "the unit is milliseconds; for one second use 1000"

#: Options of consumers and memberships; each is refused by the constructor.
OPTIONS = [
    (
        {"session_timeout_ms": "10s"},
        "session_timeout_ms='10s': expected an integer number of milli",
    ),
    ({"session_timeout_ms": 10.5}, MILLISECONDS),
    ({"session_timeout_ms": 2**31}, "integer from 1 to 2,147,483,647 ms"),
    ({"session_timeout_ms": True}, "session_timeout_ms=True: expected an integer"),
    ({"session_timeout_ms": None}, "session_timeout_ms=None: expected an integer"),
    ({"heartbeat_interval_ms": 0}, "heartbeat_interval_ms=0: expected an integer from 1 to"),
    ({"heartbeat_interval_ms": 50_000}, r"less than session_timeout_ms \(45000\)"),
    ({"request_timeout_ms": -1}, "request_timeout_ms=-1: expected an integer from 1 to"),
    (
        {"retry_backoff_ms": "fast"},
        "retry_backoff_ms='fast': expected an integer number of milli",
    ),
    ({"response_bytes_max": 1.5}, "response_bytes_max=1.5: expected an integer number of bytes"),
    ({"client_id": 5}, "client_id=5: expected a string"),
    ({"client_id": b"me"}, "client_id=b'me': expected a string"),
    ({"group_instance_id": ""}, "group_instance_id='': expected a string that is not empty"),
    ({"security_protocol": "TLS"}, "security_protocol must be one of"),
    ({"security_protocol": 1}, "security_protocol must be one of"),
    ({"security_protocol": "SSL", "ssl_cafile": 5}, "ssl_cafile must be a string or None"),
    ({"security_protocol": "SSL", "ssl_context": "x"}, "ssl_context must be an ssl.SSLContext"),
    (
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": 5},
        "sasl_username must be a string",
    ),
    ({"bootstrap_servers": "x"}, "not a broker address; write HOST:PORT"),
]
CONSUMER_OPTIONS = [
    ({"group_id": ""}, "group_id='': expected a string that is not empty"),
    ({"group_id": 7}, "group_id=7: expected a string"),
    ({"enable_auto_commit": "false"}, "enable_auto_commit='false': expected True or False"),
    ({"enable_auto_commit": 0}, "enable_auto_commit=0: expected True or False"),
    ({"max_poll_records": 0}, "max_poll_records=0: expected an integer from 1 to"),
    ({"max_poll_records": "500"}, "max_poll_records='500': expected an integer number of records"),
    ({"fetch_max_bytes": 2**40}, "integer from 1 to 2,147,483,647 bytes"),
    ({"isolation_level": 1}, "'read_uncommitted' or 'read_committed'"),
    ({"auto_offset_reset": None}, "auto_offset_reset=None: expected 'earliest', 'latest'"),
    ({"client_rack": 1}, "client_rack=1: expected a string"),
    ({"partition_assignment_strategy": 5}, "an assignor, or one of Kafka's names"),
    ({"partition_assignment_strategy": []}, "a consumer that subscribes needs an assignor"),
    ({"partition_assignment_strategy": assignors.Range}, r"not the class: Range\(\.\.\.\)"),
    ({"key_deserializer": "utf-8"}, "key_deserializer='utf-8': expected a function"),
    ({"value_deserializer": 5}, "value_deserializer=5: expected a function"),
]

SERVER_LISTS = [
    (5, "a string or a list of HOST:PORT"),
    (None, "a string or a list of HOST:PORT"),
    (b"a:1", "a string or a list of HOST:PORT"),
    ([], "bootstrap.servers is empty"),
    (["a"], "'a' is not a broker address; write HOST:PORT"),
    (["a:1", 2], "2 is not a broker address; write HOST:PORT"),
    ([("a", 9092)], r"\('a', 9092\) is not a broker address; write HOST:PORT"),
    ({"bootstrap.servers": "a:1"}, "a string or a list of HOST:PORT"),
]


class Recorder(Task):
    def process(self, record):
        """Process nothing."""


async def work(_):
    """Do nothing."""


class Listener(RebalanceListener):
    """A listener without methods."""


def poll(consumer, *args, **kwargs):
    return consumer.poll(*args, **kwargs)


#: Calls of methods that both consumers have. The address has no broker: nothing may connect.
CONSUMER_CALLS = [
    (lambda c: c.poll(1.0), f"timeout_ms=1.0: expected an integer: {MILLISECONDS}"),
    (lambda c: c.poll("1s"), "timeout_ms='1s': expected an integer number of milli"),
    (lambda c: c.poll(-1), "timeout_ms=-1: expected an integer of 0 or more ms"),
    (lambda c: c.poll(None), "timeout_ms=None: expected an integer"),
    (lambda c: c.poll(0, max_records=-1), "max_records=-1: expected an integer of 0 or more"),
    (lambda c: c.poll(0, max_records="5"), "max_records='5': expected an integer"),
    (lambda c: c.close(1.5), MILLISECONDS),
    (lambda c: c.unsubscribe(2.5), MILLISECONDS),
    (lambda c: c.assign(["flights"]), r"'flights' is not a partition: write \('flights', 0\)"),
    (lambda c: c.assign("flights"), "partitions='flights': expected a list of partitions"),
    (lambda c: c.assign(T0), r"a list of partitions: \[\('flights', 0\)\]"),
    (lambda c: c.assign(["ab"]), "'ab' is not a partition"),
    (lambda c: c.assign([("flights", "0")]), "partition='0': expected an integer"),
    (lambda c: c.assign([("flights", -1)]), "partition=-1: expected an integer from 0 to"),
    (lambda c: c.assign([(0, "flights")]), "a topic and a number"),
    (lambda c: c.assign([("flights", 0, 5)]), "a topic and a number"),
    (lambda c: c.assign(None), "partitions=None: expected a list"),
    (lambda c: c.assign(5), "partitions=5: expected a list"),
    (lambda c: c.subscribe("flights"), r"subscribe\(\) takes a list, \['flights'\]"),
    (lambda c: c.subscribe([]), "at least one topic"),
    (lambda c: c.subscribe(None), "topics=None: expected a list of strings"),
    (lambda c: c.subscribe([b"flights"]), "b'flights' is not a valid name"),
    (lambda c: c.subscribe([""]), "'' is not a valid name"),
    (lambda c: c.subscribe([T0]), r"\('flights', 0\) is not a valid name"),
    (lambda c: c.subscribe(re.compile(b"f")), "topics.pattern=b'f': expected a string"),
    (lambda c: c.subscribe(["flights"], print), "listener=.*: expected an instance of Rebalance"),
    (lambda c: c.subscribe(["flights"], Listener), r"not the class: Listener\(\.\.\.\)"),
    (lambda c: c.seek("flights", 0), "'flights' is not a partition"),
    (lambda c: c.seek(T0, "0"), "offset='0': expected an integer"),
    (lambda c: c.seek(T0, 1.0), "offset=1.0: expected an integer"),
    (lambda c: c.seek(T0, -1), r"offset=-1: .*seek_to_beginning\(\)"),
    (lambda c: c.seek_to_beginning([T0]), r"seek_to_beginning\(\*partitions\)"),
    (lambda c: c.seek_to_end("flights", 0), r"seek_to_end\(\('flights', 0\)\)"),
    (lambda c: c.seek_to_time(1.5), "timestamp_ms=1.5: expected an integer of ms since the epoch"),
    (lambda c: c.seek_to_time(-1), "timestamp_ms=-1: expected an integer from 0"),
    (
        lambda c: c.seek_to_time(datetime.datetime(2024, 1, 1)),
        r"round\(moment.timestamp\(\) \* 1000\)",
    ),
    (lambda c: c.pause([T0]), r"pause\(\*partitions\)"),
    (lambda c: c.pause("flights"), "'flights' is not a partition"),
    (lambda c: c.resume(5), "5 is not a partition"),
    (lambda c: c.position("flights"), "'flights' is not a partition"),
    (lambda c: c.beginning_offsets("flights"), "a list of partitions"),
    (lambda c: c.end_offsets([5]), "5 is not a partition"),
    (lambda c: c.offsets_for_times([T0]), "times_ms=.*: expected a dict"),
    (lambda c: c.offsets_for_times({T0: "now"}), "times_ms='now': expected an integer"),
    (lambda c: c.partitions_of(["flights"]), "topic=.*: expected a string"),
    (lambda c: c.partitions_of(""), "topic='': expected a string that is not empty"),
    (lambda c: c.committed("flights"), "a list of partitions"),
    (lambda c: c.commit([T0]), "offsets=.*: expected a dict"),
    (lambda c: c.commit({T0: "5"}), "offset='5': expected an integer"),
    (lambda c: c.commit({T0: -5}), "offset=-5: expected an integer"),
    (lambda c: c.commit({"flights": 5}), "'flights' is not a partition"),
    (lambda c: c.commit({T0: OffsetAndMetadata(1, b"a")}), "metadata=b'a': expected a string"),
    (lambda c: c.commit({T0: OffsetAndMetadata(None)}), "offset=None: expected an integer"),
    (lambda c: c.to_arrow(columns=["val"]), "no column 'val': did you mean 'value'"),
    (lambda c: c.to_arrow(columns="value"), r"columns='value': expected a list: \['value'\]"),
    (lambda c: c.to_arrow(columns=[5]), "5 is not a valid name"),
    (lambda c: c.to_arrow(timeout_ms=1.5), MILLISECONDS),
]
SYNC_CONSUMER_CALLS = [
    (lambda c: c.arrow_reader(columns=["val"]), "no column 'val': did you mean 'value'"),
    (lambda c: c.arrow_reader(timeout_ms=0.5), MILLISECONDS),
    (lambda c: c.commit_async({T0: None}), "offset=None: expected an integer"),
]
RECORDS_CALLS = [
    (lambda: partage.Records().to_arrow(["val"]), "no column 'val': did you mean 'value'"),
    (lambda: partage.Records().of("flights", "0"), "partition='0': expected an integer"),
]


def membership(kind):
    """Return constructor calls of a membership with one wrong argument each."""
    good = {
        "bootstrap_servers": SERVERS,
        "group_id": "crew",
        "protocol_type": "crew",
        "metadata": {},
    }
    wrong = [
        ({"group_id": ""}, "group_id='': expected a string"),
        ({"group_id": None}, "group_id=None: expected a string"),
        ({"protocol_type": 5}, "protocol_type=5: expected a string"),
        ({"protocol": ""}, "protocol='': expected a string"),
        ({"metadata": object()}, "metadata=.*: expected a value that JSON can express"),
        ({"metadata": b"x"}, "needs an assign function"),
        ({"assign": "range"}, "assign='range': expected a function"),
        ({"listener": print}, "listener=.*: expected an instance of MembershipListener"),
        ({"rebalance_timeout_ms": 0}, "rebalance_timeout_ms=0: expected an integer from 1 to"),
        ({"rebalance_timeout_ms": 60.0}, MILLISECONDS),
        ({"check_crcs": True}, "no option 'check_crcs'"),
        ({"group_protocol": "consumer"}, "does not accept group_protocol: the leader .* classic"),
        ({"group_remote_assignor": "range"}, "does not accept group_remote_assignor: the leader"),
        ({"sesion_timeout_ms": 1}, "did you mean 'session_timeout_ms'"),
    ]
    return [(lambda bad=bad: kind(**{**good, **bad}), said) for bad, said in wrong]


def recipe(kind, good, wrong):
    return [(lambda bad=bad: kind(**{**good, **bad}), said) for bad, said in wrong]


ELECTION = [
    ({"work": "work"}, "work='work': expected a function"),
    ({"stands": "yes"}, "stands='yes': expected True or False"),
    ({"priority": "1"}, "priority='1': expected an integer"),
    ({"priority": 1.5}, "priority=1.5: expected an integer"),
    ({"stop_ms": 0.5}, MILLISECONDS),
    ({"stop_ms": 60_000}, "leaves -15000 ms"),
    ({"identity": object()}, "identity=.*: expected a value that JSON can express"),
    ({"group_instance_id": "a"}, "does not support group_instance_id"),
    ({"group_protocol": "consumer"}, "does not accept group_protocol: the leader .* classic"),
]
POOL = [
    ({"units": "site"}, r"units='site': expected a list: \['site'\]"),
    ({"units": 5}, "units=5: expected a list"),
    ({"units": [5]}, "units must be strings"),
    ({"work": None}, "work=None: expected a function"),
    ({"name": ""}, "name='': expected a string that is not empty"),
    ({"name": 5}, "name=5: expected a string"),
    ({"rebalance_delay_ms": 1.5}, MILLISECONDS),
    ({"rebalance_delay_ms": -1}, "rebalance_delay_ms=-1: expected an integer"),
    ({"stop_ms": "1s"}, "stop_ms='1s': expected an integer"),
    ({"group_protocol": "auto"}, "does not accept group_protocol: the leader .* classic"),
]
PROCESSOR = [
    ({"make_task": "Join"}, "make_task='Join': expected a function"),
    ({"joined": "clicks"}, r"joined='clicks': expected a list: \['clicks'\]"),
    ({"joined": ["clicks"]}, "at least two topics"),
    ({"joined": [1, 2]}, "1 is not a valid name"),
    ({"joined": None}, "joined=None: expected a list"),
    ({"topics": "clicks"}, r"topics='clicks': expected a list: \['clicks'\]"),
    ({"topics": ["clicks"]}, "named in both joined and topics: clicks"),
    ({"commit_interval_ms": 0.5}, MILLISECONDS),
    ({"commit_interval_ms": -1}, "commit_interval_ms=-1: expected an integer"),
    ({"enable_auto_commit": True}, "does not accept enable_auto_commit"),
    ({"value_deserializer": bytes.decode}, "does not accept value_deserializer"),
    ({"unknown_topic_wait_ms": "5s"}, "unknown_topic_wait_ms='5s': expected an integer"),
    ({"group_id": None}, "group_id=None: expected a string"),
]
INDEXER = [
    ({"topics": "flights"}, r"topics='flights': expected a list: \['flights'\]"),
    ({"topics": []}, "topics=.*: expected at least one string"),
    ({"indexes": 5}, "indexes=5: expected a directory or an IndexStore"),
    ({"replicas": "2"}, "replicas='2': expected an integer"),
    ({"replicas": 0}, "replicas=0: expected an integer of 1 or more"),
    ({"text": "value"}, "text='value': expected a function"),
    ({"commit_interval_ms": 0}, "commit_interval_ms=0: expected an integer of 1 or more"),
    ({"state_cleanup_delay_ms": -1}, "state_cleanup_delay_ms=-1: expected an integer"),
    ({"auto_offset_reset": "latest"}, "does not accept auto_offset_reset"),
    ({"key_deserializer": bytes.decode}, "does not accept key_deserializer"),
    ({"group_id": ""}, "group_id='': expected a string"),
]

#: Calls without a broker, of modules other than those of consumers and recipes.
OTHER_CALLS = [
    (lambda: assignors.Weighted("2"), "weight='2': expected a number"),
    (lambda: assignors.Weighted(0), "weight=0: expected a positive number"),
    (lambda: assignors.Canary("v1", share="half"), "share='half': expected a number, from 0 to 1"),
    (lambda: assignors.Canary("v1", share=2), "share=2: expected a number, from 0 to 1"),
    (lambda: assignors.Canary(5), "running=5: expected a string"),
    (lambda: assignors.ConsistentHashing(points="100"), "points='100': expected an integer"),
    (lambda: assignors.ConsistentHashing(points=0), "points=0: expected an integer of 1 or more"),
    (lambda: assignors.ConsistentHashing(headroom=-1), "headroom=-1: expected a number, 0 or more"),
    (lambda: assignors.CoPartitioned(["a", "b"]), r"one by one: CoPartitioned\('clicks"),
    (lambda: assignors.CoPartitioned(5), r"one by one: CoPartitioned\('clicks"),
    (lambda: assignors.Redundant("2"), "replicas='2': expected an integer"),
    (lambda: assignors.Redundant(copies=5), "copies=5: expected a function"),
    (lambda: assignors.RackAware("rack"), "rack_of_host='rack': expected a function"),
    (lambda: assignors.protocols_by_name([5]), "assignors=.*: expected a list of assignors"),
    (lambda: assignors.rebalance_protocol(None), "assignors=None: expected a list of assignors"),
    (lambda: Connector("a/b", 1), "a word without '/'"),
    (lambda: Connector("jdbc", "2"), "tasks='2': expected an integer"),
    (lambda: Connector(5, 2), "name=5: expected a string"),
    (lambda: Connector("jdbc", 2, config=5), "config=5: expected a dict"),
    (lambda: Connector("jdbc", 2, strategy=5), "strategy must be 'balanced'"),
    (lambda: search(5, "fog"), "directory=5: expected a path"),
    (lambda: search("indexes", 5), "query=5: expected a string"),
    (lambda: search("indexes", "fog", limit="10"), "limit='10': expected an integer"),
    (
        lambda: search("indexes", "fog", limit=0),
        "must be 1 to 1,000,000 records, not 0",
    ),
    (lambda: search("indexes", "fog", topics="flights"), r"expected a list: \['flights'\]"),
    (lambda: searchable_partitions(None), "directory=None: expected a path"),
    (lambda: install_commit_listener("spark"), "spark='spark': expected a SparkSession"),
    (lambda: drop_duplicates("frame"), "frame='frame': expected a DataFrame"),
    (lambda: ThreadedBroker(["a"]), "settings=.*: expected a dict"),
    (lambda: ThreadedBroker({"auto.create.topic": "x"}), "auto.create.topic"),
    (lambda: BrokerProcess(5), "data_dir=5: expected a path"),
]


def identified(cases):
    return [pytest.param(*case, id=re.sub(r"\W+", "-", case[-1])[:60]) for case in cases]


def check(call, said):
    """Make a call, on an event loop if necessary; check its error."""

    async def run():
        found = call()
        if inspect.isawaitable(found):
            await found

    with pytest.raises((TypeError, ValueError)) as caught:
        asyncio.run(run())
    assert re.search(said, str(caught.value)), str(caught.value)
    assert type(caught.value).__module__ != "builtins"


@pytest.fixture(params=[partage.Consumer, partage.sync.Consumer], ids=["asyncio", "sync"])
def consumer(request):
    consumer = request.param(SERVERS, group_id="tower")
    yield consumer
    closing = consumer.close()
    if inspect.isawaitable(closing):
        asyncio.run(closing)


@pytest.mark.parametrize(("options", "said"), identified([*OPTIONS, *CONSUMER_OPTIONS]))
def test_consumer_invalid_option_raises(options, said):
    for kind in (partage.Consumer, partage.sync.Consumer):
        check(lambda kind=kind: kind(**{"bootstrap_servers": SERVERS, **options}), said)


@pytest.mark.parametrize(("options", "said"), identified(OPTIONS))
def test_membership_invalid_option_raises(options, said):
    for kind in (partage.Membership, partage.sync.Membership):
        given = {"bootstrap_servers": SERVERS, **options}
        check(
            lambda kind=kind, given=given: kind(
                given.pop("bootstrap_servers"), "g", "p", {}, **given
            ),
            said,
        )


@pytest.mark.parametrize(("servers", "said"), identified(SERVER_LISTS))
def test_invalid_bootstrap_servers_raise(servers, said):
    check(lambda: partage.Consumer(servers), said)
    check(lambda: partage.sync.Membership(servers, "g", "p", {}), said)
    check(lambda: LeaderElection(servers, "g"), said)


@pytest.mark.parametrize(("call", "said"), identified(CONSUMER_CALLS))
def test_consumer_method_invalid_argument_raises(consumer, call, said):
    check(lambda: call(consumer), said)


def test_sync_consumer_method_invalid_argument_raises():
    with partage.sync.Consumer(SERVERS, group_id="tower") as consumer:
        for call, said in SYNC_CONSUMER_CALLS:
            check(lambda call=call: call(consumer), said)


@pytest.mark.parametrize(("call", "said"), identified([*RECORDS_CALLS, *OTHER_CALLS]))
def test_public_function_invalid_argument_raises(call, said):
    check(call, said)


@pytest.mark.parametrize(
    ("call", "said"),
    identified([*membership(partage.Membership), *membership(partage.sync.Membership)]),
)
def test_membership_invalid_argument_raises(call, said):
    check(call, said)


GOOD = {"bootstrap_servers": SERVERS, "group_id": "g"}


@pytest.mark.parametrize(
    ("call", "said"),
    identified(
        [
            *recipe(LeaderElection, GOOD, ELECTION),
            *recipe(WorkerPool, {**GOOD, "units": ["a"], "work": work, "name": "a"}, POOL),
            *recipe(
                Processor, {**GOOD, "make_task": Recorder, "joined": ["clicks", "b"]}, PROCESSOR
            ),
            *recipe(
                sync_recipes.Processor,
                {**GOOD, "make_task": Recorder, "joined": ["clicks", "b"]},
                PROCESSOR,
            ),
        ]
    ),
)
def test_recipe_invalid_argument_raises(call, said):
    check(call, said)


@pytest.mark.parametrize(("bad", "said"), identified(INDEXER))
def test_indexer_invalid_argument_raises(tmp_path, bad, said):
    good = {**GOOD, "topics": ["flights"], "indexes": tmp_path}
    for kind in (RedundantIndexer, sync_recipes.RedundantIndexer):
        check(lambda kind=kind: kind(**{**good, **bad}), said)


def test_membership_method_invalid_argument_raises():
    with partage.sync.Membership(SERVERS, "g", "p", {}) as member:
        for call, said in [
            (lambda: member.assignment(after="x"), "after='x': expected an integer"),
            (lambda: member.assignment(timeout_ms=1.5), MILLISECONDS),
            (lambda: member.update(object()), "metadata=.*: expected a value that JSON"),
            (lambda: member.rejoin(5), "reason=5: expected a string"),
            (lambda: member.close(0.5), MILLISECONDS),
        ]:
            check(call, said)


def test_missing_pyarrow_names_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "partage.client.arrow", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with partage.sync.Consumer(SERVERS) as consumer:
        consumer.assign([T0])
        for call in (consumer.to_arrow, consumer.arrow_reader, partage.Records().to_arrow):
            with pytest.raises(ModuleNotFoundError, match=r"pip install 'partage\[arrow\]'"):
                call()


def test_valid_arguments_of_other_types_are_accepted():
    """Integers of NumPy, pairs as lists and addresses in a list are valid."""
    numpy = pytest.importorskip("numpy")
    with partage.sync.Consumer(["127.0.0.1:1", "127.0.0.1:2, 127.0.0.1:3"]) as consumer:
        consumer.assign([["flights", numpy.int64(3)]])
        assert consumer.assignment() == {TopicPartition("flights", 3)}
        assert type(next(iter(consumer.assignment())).partition) is int
        assert not consumer.poll(numpy.int32(0), max_records=numpy.int64(1))


def test_election_priority_of_numpy_is_accepted():
    numpy = pytest.importorskip("numpy")
    LeaderElection(SERVERS, "tower", priority=numpy.int64(3))


def test_pool_delay_of_numpy_becomes_an_integer_for_json():
    numpy = pytest.importorskip("numpy")
    pool = WorkerPool(
        SERVERS, "tower", ["runway"], print, name="a", rebalance_delay_ms=numpy.int64(5)
    )
    assert type(pool._delay_ms) is int


def test_commit_without_metadata_is_accepted():
    """kafka-python's users write ``OffsetAndMetadata(offset, None)``, and Java accepts it too."""
    offsets = to_offsets({("flights", 0): OffsetAndMetadata(5, None)})
    assert offsets == {T0: OffsetAndMetadata(5, "")}


def test_assignor_numbers_of_numpy_are_accepted():
    numpy = pytest.importorskip("numpy")
    assert assignors.Weighted(numpy.int64(2)).weight == 2.0
    assert assignors.Canary("v1", share=numpy.float32(0.5)).share == 0.5
    assert assignors.ConsistentHashing(headroom=numpy.float32(0.5)).headroom == 0.5
    with pytest.raises(ValueError, match="from 0 to 1"):
        assignors.Canary("v1", share=numpy.float32(1.5))
