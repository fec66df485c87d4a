"""Options, columns and the producer of a write, without Spark."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.types import StructType

from partage.client.security.options import SecurityOptions
from partage.spark.bounds import SparkOptionError
from partage.spark.kafka_options import check_setting_names
from partage.spark.sink import task_producer
from partage.spark.sink.columns import NullTopicError, SinkRecord, find_columns, to_records
from partage.spark.sink.errors import WriteError
from partage.spark.sink.options import (
    _KNOWN,
    _NO_EFFECT,
    _UNSUPPORTED,
    KNOWN_WRITE_OPTIONS,
    parse_write_options,
    to_librdkafka,
)
from partage.spark.sink.task_producer import TaskProducer, write_all
from partage.testing import BrokerProcess

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(is_stream=False, **given):
    return parse_write_options(
        SERVERS | {n.replace("__", "."): v for n, v in given.items()}, is_stream=is_stream
    )


def test_option_names_are_case_insensitive():
    options = parse_write_options(
        {"KAFKA.bootstrap.Servers": "h:1", "TOPIC": " t ", "kafka.Linger.MS": "0"}, is_stream=False
    )
    assert (options.servers, options.topic) == ("h:1", "t")
    producer = dict(options.producer)
    assert producer["linger.ms"] == "0"
    assert producer["bootstrap.servers"] == "h:1"
    assert producer["enable.idempotence"] == "true"
    assert producer["partitioner"] == "murmur2_random"


def test_mark_rows_defaults_to_streams_only():
    at_least_once = {"deliveryGuarantee": "at-least-once", "is_stream": True}
    assert [parse().mark_rows, parse(**at_least_once).mark_rows] == [False, True]
    assert parse(markRows="true").mark_rows
    assert not parse(**at_least_once, markRows="false").mark_rows
    assert [parse(is_stream=True).mark_rows, parse(is_stream=True, markRows="true").mark_rows] == [
        False,
        True,
    ]


def test_streams_have_transactions_by_default():
    assert parse().transactional_id_prefix is None
    assert parse(is_stream=True, deliveryGuarantee="At-Least-Once").transactional_id_prefix is None
    options = parse(is_stream=True)
    assert (options.transactional_id_prefix, options.transaction_timeout_ms) == (
        "partage-sink",
        900_000,
    )
    assert parse(is_stream=True, transactionalIdPrefix="team").transactional_id_prefix == "team"


def test_delivery_timeout_is_at_most_transaction_timeout():
    def delivery_ms(**given):
        return dict(parse(is_stream=True, **given).producer)["delivery.timeout.ms"]

    assert delivery_ms() == "120000"
    short = {"kafka__transaction__timeout__ms": "5000", "kafka__max__block__ms": "1000"}
    assert delivery_ms(**short) == "5000"
    assert delivery_ms(kafka__delivery__timeout__ms="7000") == "7000"


@pytest.mark.parametrize(
    ("given", "story"),
    [
        ({"deliveryGuarantee": "none"}, "takes exactly-once or at-least-once, not 'none'"),
        ({"transactionalIdPrefix": " "}, "transactionalIdPrefix is empty"),
        (
            {"deliveryGuarantee": "at-least-once", "transactionalIdPrefix": "x"},
            "transactionalIdPrefix has no effect without transactions",
        ),
        (
            {"deliveryGuarantee": "at-least-once", "kafka__transaction__timeout__ms": "1000"},
            "kafka.transaction.timeout.ms has no effect without transactions",
        ),
        (
            {"kafka__delivery__timeout__ms": "2000", "kafka__transaction__timeout__ms": "1000"},
            r"kafka.delivery.timeout.ms=2000 is longer than kafka.transaction.timeout.ms \(1000",
        ),
        ({"kafka__transaction__timeout__ms": "soon"}, "takes a whole number above zero"),
        (
            {"kafka__transaction__timeout__ms": "60000"},
            r"timeout.ms=60000 must be longer than kafka.max.block.ms \(60000\)",
        ),
    ],
)
def test_invalid_transaction_option_is_rejected(given, story):
    with pytest.raises(SparkOptionError, match=story):
        parse(is_stream=True, **given)


def test_spark_options_are_accepted():
    assert parse(is_stream=True, checkpointLocation="/tmp/c", path="/p").topic is None


@pytest.mark.parametrize(
    ("given", "story"),
    [
        ({"topics": "t"}, "there is no option 'topics' for writing; did you mean topic"),
        ({"topic": " "}, "topic is empty"),
        ({"kafka__acks": "1"}, "kafka.acks=1 may lose records"),
        ({"kafka__acks": "2"}, "kafka.acks takes all or -1 or 0 or 1, not '2'"),
        ({"kafka__enable__idempotence": "false"}, "this sink is always idempotent"),
        ({"kafka__transactional__id": "x"}, "its own id; set transactionalIdPrefix"),
        ({"deliveryGuarantee": "exactly-once"}, "deliveryGuarantee=exactly-once is for streams"),
        ({"kafka__transaction__timeout__ms": "1"}, "has no effect without transactions"),
        ({"kafka__partitioner__class": "x"}, "give the rows a partition column"),
        ({"kafka__linger__ms": "-1"}, "kafka.linger.ms takes a whole number, not '-1'"),
        ({"kafka__lingerms": "1"}, "kafka.lingerms is not a setting.*did you mean kafka.linger.ms"),
        ({"kafka__max__block__ms": "soon"}, "kafka.max.block.ms takes a whole number above zero"),
        ({"kafka__compression__type": "rar"}, "takes none or gzip or snappy or lz4 or zstd"),
        ({"kafka__bootstrap__servers": "h"}, "kafka.bootstrap.servers: "),
        (
            {"kafka__ssl__truststore__type": "PEM", "kafka__ssl__truststore__location": "/nowhere"},
            "ssl_cafile has no effect with security_protocol=PLAINTEXT",
        ),
        ({"includeHeaders": "maybe"}, "includeHeaders takes true or false"),
    ],
)
def test_invalid_option_is_rejected_with_reason(given, story):
    with pytest.raises(SparkOptionError, match=story):
        parse(**given)


def test_missing_servers_are_rejected():
    with pytest.raises(SparkOptionError, match=r"kafka\.bootstrap.servers is missing"):
        parse_write_options({}, is_stream=False)


def test_java_only_setting_is_logged(caplog):
    parse(kafka__buffer__memory="1")
    assert "kafka.buffer.memory has no effect on a partage sink" in caplog.text


def test_unknown_setting_is_logged_on_request(caplog):
    parse(kafka__foo__bar="1", partage__unknown__options="warn")
    assert "kafka.foo.bar is not a setting of this sink; ignored because" in caplog.text


def test_each_setting_of_kafka_producer_is_known():
    """The settings of Kafka 4.4.0: ``ProducerConfig.configNames()``."""
    names = (Path(__file__).parent / "producer_settings.txt").read_text().split()
    check_setting_names(
        [name for name in names if name not in _UNSUPPORTED],
        known=_KNOWN,
        no_effect=_NO_EFFECT,
        unsupported={},
        user="sink",
        ignores_unknown=False,
    )


def test_every_option_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    assert [name for name in KNOWN_WRITE_OPTIONS if f"`{name}`" not in page] == []


def test_security_options_map_to_librdkafka():
    security = SecurityOptions(
        security_protocol="SASL_SSL",
        ssl_cafile="/ca.pem",
        ssl_certfile="/me.pem",
        ssl_check_hostname=False,
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="s3cret",
    )
    assert to_librdkafka(security) == {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "s3cret",
    }
    assert to_librdkafka(SecurityOptions()) == {"security.protocol": "plaintext"}


def test_librdkafka_accepts_all_mapped_settings():
    names = (
        "batch.size",
        "connections.max.idle.ms",
        "delivery.timeout.ms",
        "metadata.max.age.ms",
        "max.in.flight.requests.per.connection",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "reconnect.backoff.max.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
        "linger.ms",
        "max.request.size",
    )
    values = {f"kafka.{name}": "5000" for name in names} | {
        "kafka.max.in.flight.requests.per.connection": "5",
        "kafka.delivery.timeout.ms": "60000",
        "kafka.client.id": "me",
        "kafka.acks": "-1",
        "kafka.compression.type": "zstd",
    }
    TaskProducer(parse_write_options(SERVERS | values, is_stream=False)).discard()
    values["kafka.max.in.flight.requests.per.connection"] = "6"
    with pytest.raises(WriteError, match=r"the producer rejected the options: .*max\.in\.flight"):
        TaskProducer(parse_write_options(SERVERS | values, is_stream=False))


def shape(ddl, topic=None):
    return find_columns(schema(ddl), topic)


def schema(text):
    kinds = {"string": "string", "binary": "binary", "int": "integer", "long": "long"}
    headers = {
        "type": "array",
        "containsNull": True,
        "elementType": {
            "type": "struct",
            "fields": [
                {"name": "key", "type": "string", "nullable": True, "metadata": {}},
                {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
            ],
        },
    }
    fields = [part.split(" ") for part in text.split(", ")]
    return StructType.fromJson(
        {
            "fields": [
                {"name": name, "type": kinds.get(kind, headers), "nullable": True, "metadata": {}}
                for name, kind in fields
            ]
        }
    )


class TestColumns:
    def test_columns_are_found_in_any_order(self):
        assert shape("x int, key string, value binary, topic string, headers h") == (
            2,
            1,
            3,
            None,
            4,
        )
        assert shape("value string, partition int", "t") == (0, None, None, 1, None)

    def test_topic_option_overrides_topic_column(self):
        assert shape("value string, topic int", "t").topic is None

    @pytest.mark.parametrize(
        ("ddl", "topic", "story"),
        [
            ("key string, valu string", "t", "needs a column named value; it has key, valu"),
            ("value string", None, "the topic is missing: set the option topic"),
            ("value int", "t", "the column value must be binary or string, not int; cast it"),
            ("value string, key long", "t", "the column key must be binary or string, not bigint"),
            ("value string, topic binary", None, "the column topic must be string, not binary"),
            ("value string, partition long", "t", "partition must be integer, not bigint"),
            ("value string, headers string", "t", "must be array<struct<key:string,value:binary>>"),
        ],
    )
    def test_invalid_column_is_rejected(self, ddl, topic, story):
        with pytest.raises(SparkOptionError, match=story):
            shape(ddl, topic)


class TestRows:
    def batch(self, **columns):
        import pyarrow as pa

        return pa.RecordBatch.from_pydict(columns)

    def test_rows_become_records(self):
        batch = self.batch(
            value=["a", None],
            key=[b"k", None],
            topic=["t", "u"],
            partition=[None, 3],
            headers=[[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
        )
        wanted = find_columns(
            schema("value string, key binary, topic string, partition int, headers h"), None
        )
        assert list(to_records(batch, wanted, None)) == [
            SinkRecord("t", b"k", "a", None, [("h", b"1"), ("h", None)]),
            SinkRecord("u", None, None, 3, []),
        ]

    def test_null_topic_is_rejected(self):
        batch = self.batch(value=["a", "b"], topic=["t", None])
        found = to_records(batch, shape("value string, topic string"), None)
        assert next(found).topic == "t"
        with pytest.raises(NullTopicError, match="set the option topic"):
            next(found)

    def test_negative_partition_is_rejected(self):
        batch = self.batch(value=["a"], partition=[-1])
        with pytest.raises(SparkOptionError, match="a row's partition is -1"):
            list(to_records(batch, shape("value string, partition int", "t"), "t"))

    @pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
    def test_header_without_key_is_rejected(self, header):
        import pyarrow as pa

        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        batch = pa.RecordBatch.from_arrays(
            [pa.array(["a"]), pa.array([[header]], kind)], names=["value", "headers"]
        )
        with pytest.raises(SparkOptionError, match="a header has no key"):
            list(to_records(batch, shape("value string, headers h", "t"), "t"))


class TestSending:
    def write(self, servers, values, **given):
        settings = {"kafka.bootstrap.servers": servers, "kafka.linger.ms": "0", "topic": "t"}
        options = parse_write_options(settings | given, is_stream=False)
        records = (SinkRecord("t", None, value, None, []) for value in values)
        return write_all(records, options)

    def test_unacknowledged_records_raise_write_error(self):
        with BrokerProcess() as broker:
            servers = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
            admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
            limits = {"kafka.delivery.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}

            def values():
                yield b"while it lives"
                broker.kill()
                yield from [b"after it died"] * 10

            with pytest.raises(WriteError, match="records were not acknowledged; the first was"):
                self.write(servers, values(), **limits)
            broker.start()
            # A new producer, without records of the failed write.
            assert self.write(servers, [b"x"] * 5, **limits) == 5

    def test_failed_iterator_discards_pending_records(self):
        with BrokerProcess() as broker:
            servers = broker.bootstrap_servers

            def values():
                yield b"a"
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                self.write(servers, values())
            assert self.write(servers, [b"b"]) == 1

    def test_topic_is_missing_if_the_broker_said_so_before_it_died(self, monkeypatch):
        with BrokerProcess(overrides={"auto.create.topics.enable": "false"}) as broker:
            pause = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: broker.kill())
            monkeypatch.setattr(task_producer, "time", pause)
            with pytest.raises(WriteError, match="there is no topic 't' at 127"):
                self.write(broker.bootstrap_servers, [b"x"], **{"kafka.max.block.ms": "500"})
