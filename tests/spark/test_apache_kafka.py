"""Spark reads from and writes to Apache Kafka."""

import time

import pytest
from pyspark.sql import functions as f

from client.certificate_authority import Authority
from interop.peers.kafka import ApacheKafka

from .conftest import Kafka
from .group_state import committed, produce, wait_until
from .test_stream import Query

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.xdist_group("spark")]


LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority):
    store = authority.issue("kafka", "127.0.0.1").in_one_file()
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store.certificate),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{LOGIN} user_alice="s3cret";',
    }
    with ApacheKafka(overrides=settings, listeners={"SECURE": "SASL_SSL"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def apache(broker):
    return Kafka(broker.bootstrap)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batch_read_returns_each_record_once(spark, apache, codec):
    topic = apache.topic(3)
    apache.produce(
        topic,
        [{"value": b"%d" % n, "partition": n % 3} for n in range(3000)],
        **{"compression.type": codec},
    )
    reader = spark.read.format("partage").option("kafka.bootstrap.servers", apache.servers)
    frame = reader.options(subscribe=topic, minPartitions="5").load()
    number = f.col("value").cast("string").cast("int")
    told = frame.agg(f.count("*"), f.countDistinct("partition", "offset"), f.sum(number)).first()
    assert tuple(told) == (3000, 3000, 3000 * 2999 // 2)
    ends = frame.groupBy("partition").agg(f.max("offset")).collect()
    assert {tuple(row) for row in ends} == {(0, 999), (1, 999), (2, 999)}


def test_stream_survives_killed_kafka(spark, tmp_path, request):
    """Kafka is killed while one query waits and the other reads; it returns after 25 seconds."""
    with ApacheKafka() as broker:
        there = Kafka(broker.bootstrap)
        topic = there.topic(2)
        produce(there, topic, 2, 10)
        options = {
            "kafka.bootstrap.servers": there.servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "columns": "partition,offset",
        }

        def start(name, **more):
            frame = spark.readStream.format("partage").options(**options, **more).load()
            started = Query(frame, tmp_path / name)
            request.addfinalizer(started.query.stop)
            return started

        waits = start("waits", **{"kafka.group.id": topic})
        reads = start("reads", maxOffsetsPerTrigger="2")
        assert waits.has(20) == reads.has(20)
        produce(there, topic, 2, 10)
        waits.has(40)
        broker.kill()
        time.sleep(25)
        broker.start()
        produce(there, topic, 2, 10)
        truth = [(p, o) for p in range(2) for o in range(30)]
        assert waits.has(60) == reads.has(60) == truth
        wait_until(lambda: committed(there, topic, topic, 2) == [30, 30])


def test_batch_write_stores_each_row_once(spark, apache):
    topic = apache.topic(3)
    frame = spark.range(1000).selectExpr(
        "cast(id as string) as key",
        "cast(cast(id as string) as binary) as value",
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) as headers",
    )
    options = {"kafka.bootstrap.servers": apache.servers, "topic": topic}
    writer = frame.write.format("partage").options(**options, **{"kafka.compression.type": "zstd"})
    writer.mode("append").save()
    reader = spark.read.format("partage").option("kafka.bootstrap.servers", apache.servers)
    found = reader.options(subscribe=topic, includeHeaders="true").load()
    told = found.agg(f.count("*"), f.countDistinct("key"), f.max(f.size("headers"))).first()
    assert tuple(told) == (1000, 1000, 1)
    strict = apache.topic(1, **{"max.message.bytes": "1000"})
    large = spark.sql("SELECT repeat('x', 2000) AS value").write.format("partage")
    with pytest.raises(Exception, match="records were not acknowledged"):
        large.options(**options | {"topic": strict}).mode("append").save()


def test_batch_read_over_tls_with_password(spark, apache, broker, authority):
    topic = apache.topic(2)
    apache.produce(topic, [{"value": b"x", "partition": n % 2} for n in range(100)])
    reader = spark.read.format("partage").options(
        **{
            "kafka.bootstrap.servers": broker.listener("SECURE"),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(authority.certificate),
            "kafka.sasl.mechanism": "PLAIN",
            "subscribe": topic,
        }
    )
    login = f'{LOGIN} username="alice" password="%s";'
    assert reader.option("kafka.sasl.jaas.config", login % "s3cret").load().count() == 100
    with pytest.raises(Exception, match="check sasl_username and sasl_password") as raised:
        reader.option("kafka.sasl.jaas.config", login % "open sesame").load().count()
    assert "open sesame" not in str(raised.value)
