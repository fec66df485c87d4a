"""Topics as tables and views of Spark SQL."""

import pytest
from pyspark.errors import PySparkException

from partage.spark.bounds import SparkOptionError
from partage.spark.rows import row_schema
from partage.spark.source import PartageDataSource
from partage.spark.table_options import options_of_new_table, store_options, stored_options

GIVEN = {
    "provider": "partage",
    "owner": "root",
    "comment": "c",
    "subscribe": "t",
    "option.subscribe": "t",
    "kafka.bootstrap.servers": "a:1",
    "option.kafka.bootstrap.servers": "a:1",
}
OPTIONS = {"subscribe": "t", "kafka.bootstrap.servers": "a:1"}


def test_options_of_new_table_are_those_of_its_clause():
    assert options_of_new_table(GIVEN) == OPTIONS
    assert options_of_new_table(OPTIONS) is None


def test_options_are_stored_in_schema_and_found_again():
    schema = PartageDataSource(GIVEN).schema()
    assert stored_options(schema) == OPTIONS
    assert schema.simpleString() == PartageDataSource(OPTIONS).schema().simpleString()
    assert stored_options(PartageDataSource(OPTIONS).schema()) == {}


def test_options_of_query_override_those_of_table():
    schema = store_options(row_schema(("key",)), {**OPTIONS, "columns": "key"})
    reader = PartageDataSource({"startingTimestamp": "5", "subscribe": "u"}).reader(schema)
    assert reader._options.strategy.topics == ("u",)
    assert reader._options.starting.timestamp_ms == 5
    assert reader._options.kafka.servers == "a:1"


@pytest.mark.parametrize(
    "name",
    ["kafka.sasl.jaas.config", "kafka.sasl.password", "kafka.ssl.keystore.key", "x.client.secret"],
)
def test_secret_is_no_option_of_table(name):
    with pytest.raises(SparkOptionError, match=f"{name} cannot be an option of a table"):
        options_of_new_table({**GIVEN, f"option.{name}": "s3cret"})


def test_missing_options_are_explained():
    source = PartageDataSource({})
    with pytest.raises(SparkOptionError, match="create the table without a list of columns"):
        source.reader(row_schema(("key",)))
    with pytest.raises(SparkOptionError, match=r"write with df\.write"):
        source.writer(row_schema(("value",)), overwrite=False)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
class TestSpark:
    @pytest.fixture
    def topic(self, kafka):
        topic = kafka.topic()
        kafka.produce(topic, [{"value": b"v%d" % n} for n in range(5)])
        return topic

    def test_topic_is_readable_as_table(self, spark, kafka, topic):
        options = f"'kafka.bootstrap.servers' '{kafka.servers}', 'subscribe' '{topic}'"
        spark.sql(f"CREATE TABLE of_topic USING partage OPTIONS ({options}) COMMENT 'a topic'")
        try:
            rows = spark.sql("SELECT CAST(value AS STRING) FROM of_topic WHERE offset >= 3")
            assert sorted(row[0] for row in rows.collect()) == ["v3", "v4"]
            ending = f'{{"{topic}": {{"0": 2}}}}'
            few = spark.sql(f"SELECT offset FROM of_topic WITH ('endingOffsets' = '{ending}')")
            assert few.count() == 2
            query = (
                spark.readStream.option("startingOffsets", "earliest")
                .table("of_topic")
                .writeStream.format("memory")
                .queryName("rows_of_topic")
                .start()
            )
            query.processAllAvailable()
            query.stop()
            assert spark.table("rows_of_topic").count() == 5
            with pytest.raises(PySparkException, match=r"write with df\.write"):
                spark.sql("INSERT INTO of_topic SELECT * FROM rows_of_topic")
        finally:
            spark.sql("DROP TABLE of_topic")

    def test_topic_is_readable_as_temporary_view(self, spark, kafka, topic):
        options = f"'kafka.bootstrap.servers' '{kafka.servers}', 'subscribe' '{topic}'"
        spark.sql(f"CREATE TEMPORARY VIEW view_of_topic USING partage OPTIONS ({options})")
        assert spark.sql("SELECT count(*) FROM view_of_topic").first()[0] == 5
        spark.sql("DROP VIEW view_of_topic")
