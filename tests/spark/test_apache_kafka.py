"""Spark reads from Apache Kafka as it does from our broker."""

import pytest
from pyspark.sql import functions as f

from interop.peers.kafka import ApacheKafka

from .conftest import Kafka

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def apache():
    with ApacheKafka() as broker:
        yield Kafka(broker.bootstrap)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_comes_once(spark, apache, codec):
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
