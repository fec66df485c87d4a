"""Parsing of read options, without Spark and without a broker."""

import pickle
import re
from pathlib import Path

import pytest

from partage.client import TopicPartition
from partage.spark.bounds import (
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Earliest,
    Latest,
    SparkOptionError,
)
from partage.spark.kafka_options import settings_by_state
from partage.spark.options import (
    KNOWN_OPTIONS,
    AssignStrategy,
    SubscribePatternStrategy,
    SubscribeStrategy,
    check_batch_options,
    check_stream_options,
    parse_options,
)

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(**given):
    return parse_options({**SERVERS, "subscribe": "t", **given})


def refusal(given):
    with pytest.raises(SparkOptionError) as raised:
        check_batch_options(parse_options({**SERVERS, "subscribe": "t", **given}))
    return str(raised.value)


def test_options_have_documented_defaults():
    options = parse()
    assert options.strategy == SubscribeStrategy(("t",))
    assert (options.starting, options.ending) == (None, None)
    assert options.fail_on_data_loss
    names = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert options.columns == names
    assert (options.partitions_min, options.records_per_partition_max) == (None, None)
    assert options.kafka.fetch.verify_crc
    assert not options.kafka.fetch.read_committed


def test_option_names_are_case_insensitive():
    options = parse_options(
        {"KAFKA.bootstrap.SERVERS": "a:1", "SUBSCRIBE": " t , u,t ", "startingoffsets": "EARLIEST"}
    )
    assert options.strategy == SubscribeStrategy(("t", "u"))
    assert options.starting == Earliest()


def test_consumer_strategies_are_parsed():
    pattern = {**SERVERS, "subscribePattern": "a.*"}
    assert parse_options(pattern).strategy == SubscribePatternStrategy("a.*")
    assign = {**SERVERS, "assign": '{"t": [1, 0], "s": [7]}'}
    assert parse_options(assign).strategy == AssignStrategy((("s", 7), A, B))


@pytest.mark.parametrize("end", ["starting", "ending"])
def test_bounds_follow_connector_precedence(end):
    def bound(**given):
        return getattr(parse(**{f"{end}{name}": text for name, text in given.items()}), end)

    offsets, times = '{"t": {"0": 5, "1": -2}}', '{"t": {"0": 7}}'
    assert bound(Offsets="latest") == Latest()
    assert bound(Offsets=offsets) == AtOffsets({A: 5, B: -2})
    assert bound(Timestamp=" 9 ") == AtTimestamp(9)
    assert bound(OffsetsByTimestamp=times) == AtTimestamps({A: 7})
    # The connector's precedence.
    assert bound(Offsets=offsets, OffsetsByTimestamp=times) == AtTimestamps({A: 7})
    assert bound(Offsets=offsets, OffsetsByTimestamp=times, Timestamp="9") == AtTimestamp(9)


def test_columns_are_selected():
    assert parse(includeHeaders="true").columns[-1] == "headers"
    assert parse(columns="Value, timestamptype").columns == ("value", "timestampType")
    assert parse(columns="headers").columns == ("headers",)


def test_kafka_settings_reach_the_client():
    kafka = parse(
        **{
            "kafka.isolation.level": "READ_COMMITTED",
            "kafka.max.partition.fetch.bytes": "200000000",
            "kafka.fetch.max.bytes": "150000000",
            "kafka.request.timeout.ms": "5000",
            "kafka.retry.backoff.ms": "7",
            "kafka.check.crcs": "false",
            "kafka.client.id": "me",
            "kafka.security.protocol": "plaintext",
        }
    ).kafka
    assert kafka.servers == "a:1,b:2"
    assert kafka.fetch.read_committed
    assert kafka.fetch.partition_bytes_max == 150_000_000
    assert not kafka.fetch.verify_crc
    assert kafka.client.request_timeout_ms == 5000
    assert kafka.client.retries.backoff_ms == 7
    assert kafka.client.client_id == "me"
    # A response of that size must be accepted.
    assert kafka.client.response_bytes_max > 150_000_000


def test_settings_without_effect_are_logged(caplog):
    parse(**{"kafka.max.poll.records": "1", "kafka.group.id": "g", "groupIdPrefix": "p"})
    assert [record.getMessage() for record in caplog.records] == [
        "kafka.max.poll.records has no effect on a partage source"
    ]


def test_unknown_settings_are_logged_on_request(caplog):
    options = parse(**{"kafka.foo.bar": "1", "Partage.Unknown.Options": "warn"})
    assert options.strategy == SubscribeStrategy(("t",))
    assert [record.getMessage() for record in caplog.records] == [
        "kafka.foo.bar is not a setting of this source; ignored because "
        "partage.unknown.options=warn"
    ]
    with pytest.raises(SparkOptionError, match="no option 'startingoffset'"):
        parse(startingOffset="earliest", **{"partage.unknown.options": "warn"})


@pytest.mark.parametrize("protocol", ["CLASSIC", "consumer", "auto"])
def test_group_protocol_is_accepted(caplog, protocol):
    for group in ({}, {"kafka.group.id": "g"}):
        options = parse(**{"kafka.group.protocol": protocol}, **group)
        check_stream_options(options)
        assert options.kafka.group.protocol == protocol.lower()
        assert options.kafka.group_only_names == ()
    assert caplog.records == []


def test_each_setting_of_kafka_consumer_has_a_state():
    """The settings of Kafka 4.4.0: ``ConsumerConfig.configNames()`` without internal ones."""
    names = (Path(__file__).parent / "consumer_settings.txt").read_text().split()
    states = settings_by_state()
    assert sorted(set(names) - {name for named in states.values() for name in named}) == []
    assert sum(map(len, states.values())) == len({n for named in states.values() for n in named})


def test_options_can_be_pickled():
    options = parse(startingOffsets='{"t": {"0": 5}}')
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "story"),
    [
        (
            {"startingOffset": "earliest"},
            "no option 'startingoffset'; did you mean startingOffsets?",
        ),
        ({"xyz": "1"}, "no option 'xyz'"),
        ({"bootstrap.servers": "a:1"}, "did you mean kafka.bootstrap.servers?"),
        ({"kafka.bootstrap.servers": "a"}, "kafka.bootstrap.servers: 'a' is not a broker address"),
        ({"kafka.max.pol.records": "1"}, "did you mean kafka.max.poll.records?"),
        ({"kafka.auto.offset.reset": "latest"}, "not supported: use startingOffsets"),
        (
            {"kafka.security.protocol": "TLS"},
            "security_protocol must be one of PLAINTEXT, SSL, .*'TLS'",
        ),
        ({"kafka.sasl.mechanism": "PLAIN"}, "sasl_mechanism has no effect with .*=PLAINTEXT"),
        ({"kafka.foo": "1"}, r"setting of this source \(partage.unknown.options=warn ignores it\)"),
        ({"partage.unknown.options": "yes"}, "takes error or warn, not 'yes'"),
        ({"kafka.group.protocol": "clasic"}, "takes classic or consumer or auto, not 'clasic'"),
        (
            {"kafka.group.remote.assignor": "range"},
            "needs kafka.group.protocol=consumer: .* use kafka.partition.assignment.strategy",
        ),
        (
            {"kafka.group.protocol": "consumer", "kafka.session.timeout.ms": "9000"},
            r"session.timeout.ms has no effect .* decides \(group.consumer.session.timeout.ms\)",
        ),
        (
            {"kafka.group.protocol": "consumer", "kafka.heartbeat.interval.ms": "3000"},
            r"decides \(group.consumer.heartbeat.interval.ms\); remove",
        ),
        (
            {"kafka.group.protocol": "auto", "kafka.partition.assignment.strategy": "range"},
            r"if it has the consumer protocol \(.*; see group.remote.assignor\)",
        ),
        ({"kafka.isolation.level": "x"}, "takes read_uncommitted or read_committed, not 'x'"),
        ({"kafka.request.timeout.ms": "-1"}, "takes a whole number above zero, not '-1'"),
        ({"assign": '{"t": [0]}'}, "exactly one of .*; subscribe and assign are set"),
        ({"subscribe": " , "}, "subscribe takes topic names"),
        ({"includeHeaders": "yes"}, "includeHeaders takes true or false, not 'yes'"),
        ({"minPartitions": "0"}, "minPartitions takes a whole number above zero, not '0'"),
        ({"minPartitions": "many"}, "not 'many'"),
        ({"columns": "valeu"}, "there is no column 'valeu'; did you mean value?"),
        ({"columns": "key,key"}, "columns names a column twice"),
        ({"columns": ""}, "there is no column ''"),
        (
            {"columns": "key", "includeHeaders": "true"},
            "includeHeaders=true contradicts columns=key",
        ),
        ({"columns": "headers", "includeHeaders": "false"}, "includeHeaders=false contradicts"),
        ({"startingOffsets": "latest"}, "startingOffsets=latest leaves a batch read nothing"),
        ({"endingOffsets": "earliest"}, "endingOffsets=earliest leaves a batch read nothing"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, r"has -1 \(latest\) for t-0"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, r"has -2 \(earliest\) for t-0"),
        ({"startingOffsets": "5"}, "takes earliest, latest, or JSON such as .*; not 5"),
        ({"startingOffsets": "oldest"}, "oldest is not valid"),
        ({"startingOffsets": "{}"}, "it names no partition"),
        ({"startingOffsets": '{"t": 5}'}, "'t' has 5"),
        ({"startingOffsets": '{"t": {}}'}, "'t' has {}"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, 't\' has {"0": -3}'),
        ({"startingOffsets": '{"t": {"0": 1.5}}'}, "1.5"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "true"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "x"),
        ({"startingOffsets": '{"t": {"0": 9223372036854775808}}'}, "9223372036854775808"),
        ({"startingOffsets": '{"t": {"0": 1}, "t": {"0": 2}}'}, "a name occurs twice"),
        ({"startingTimestamp": "yesterday"}, "takes milliseconds since 1970, .* not 'yesterday'"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "-1"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "takes error or latest"),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "is after endingTimestamp=8"),
        (
            {"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"0": 8}}'},
            "startingOffsets 9 is after endingOffsets 8 for t-0",
        ),
        (
            {"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"1": 9}}'},
            "must name the same partitions: t-0, t-1",
        ),
    ],
)
def test_invalid_option_is_rejected_with_reason(given, story):
    assert re.search(story, refusal(given))


def test_missing_option_is_rejected():
    with pytest.raises(SparkOptionError, match=r"exactly one of subscribe, .*; none is set"):
        parse_options(SERVERS)
    with pytest.raises(SparkOptionError, match=r"kafka\.bootstrap\.servers is missing"):
        parse_options({"subscribe": "t"})


@pytest.mark.parametrize(
    ("text", "story"),
    [
        ("", "is not valid"),
        ("[1]", r"not \[1\]"),
        ("{}", "names no partition"),
        ('{"t": []}', r"'t' has \[\]"),
        ('{"t": 0}', "'t' has 0"),
        ('{"t": [0, -1]}', "'t' has -1"),
        ('{"t": ["0"]}', "'t' has 0"),
        ('{"t": [0, 0]}', "names a partition twice"),
    ],
)
def test_invalid_assign_is_rejected(text, story):
    with pytest.raises(SparkOptionError, match=story):
        parse_options({**SERVERS, "assign": text})


@pytest.mark.parametrize("text", ["", "a(", "*"])
def test_invalid_pattern_is_rejected(text):
    with pytest.raises(SparkOptionError, match="subscribePattern"):
        parse_options({**SERVERS, "subscribePattern": text})


def test_offsets_must_name_assigned_partitions():
    given = {**SERVERS, "assign": '{"t": [0, 1]}', "startingOffsets": '{"t": {"1": 5, "2": 5}}'}
    with pytest.raises(SparkOptionError, match="missing: t-0; not read: t-2"):
        parse_options(given)


def test_every_option_is_documented(request):
    page = (request.config.rootpath / "docs" / "spark.md").read_text()
    assert [name for name in KNOWN_OPTIONS if f"`{name}`" not in page] == []
