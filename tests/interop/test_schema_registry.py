"""The examples of docs/schema-registry.md with Apicurio Registry, for the consumer and Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from client.test_schema_registry import EXAMPLES, run
from interop.peers import registry
from partage.testing import ThreadedBroker

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("schema-registry"),
]


@pytest.fixture(scope="module")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    registry.fetch()
    with registry.SchemaRegistry(tmp_path_factory.mktemp("registry")) as running:
        yield running.url


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with ThreadedBroker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_consumer_example_with_registry(schema_registry, servers, tmp_path, kind):
    code, output = EXAMPLES[kind]
    assert run(code, tmp_path, servers, ("http://127.0.0.1:8081", schema_registry)) == output


def test_spark_example_reads_avro_of_registry(schema_registry, servers, tmp_path):
    url = ("http://127.0.0.1:8081", schema_registry)
    avro, _ = EXAMPLES["avro"]
    run(avro.replace("flights-avro", "flights-spark"), tmp_path, servers, url)
    spark, expected = EXAMPLES["spark"]
    (package,) = re.findall(r"org\.apache\.spark:spark-avro[\w.:]+", spark)
    registry.fetch_spark_package(package)
    code = spark.replace("flights-avro", "flights-spark")
    assert run(code, tmp_path, servers, url) == expected
