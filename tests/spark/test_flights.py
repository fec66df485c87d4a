"""The Spark job of the demo, on a few flights."""

import json

import pytest

from examples.flights.csv_records import FLIGHTS, WEATHER
from examples.flights.delays import joined, mean_delays, read_figures, read_weather, write
from examples.flights.figures import Cell
from partage.testing import ThreadedBroker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def flight(hour, delay):
    return {"origin": "EWR", "time_hour": hour, "dep_delay": delay, "carrier": "UA"}


def weather(hour, visibility, wind):
    return {"origin": "EWR", "time_hour": hour, "visib": visibility, "wind_speed": wind}


def test_flights_are_joined_with_weather_of_their_hour(spark, tmp_path):
    topics = {
        FLIGHTS: [
            flight("1", 10),
            flight("1", 20),
            flight("1", None),
            flight("2", -3),
            flight("3", 7),
            flight("4", None),
            flight("5", 1),
        ],
        WEATHER: [
            weather("1", 10.0, 5.0),
            weather("2", 0.25, 24.9),
            weather("3", 9.9, None),
            weather("5", 0.5, 0.0),
        ],
    }
    with ThreadedBroker() as broker:
        from .conftest import Kafka

        for topic, rows in topics.items():
            records = [{"value": json.dumps(row).encode()} for row in rows]
            Kafka(broker.bootstrap_servers).produce(topic, records)
        hours = read_weather(spark, broker.bootstrap_servers)
        flights = (
            spark.read.format("partage")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", FLIGHTS)
            .load()
        )
        rows = joined(flights, hours)
        assert {"topic", "partition", "offset"} <= set(rows.columns)
        rows.write.partitionBy("topic").parquet(str(tmp_path / "joined"))
    write(mean_delays(spark, tmp_path / "joined"), tmp_path / "delays.parquet")
    figures = read_figures(tmp_path / "delays.parquet")
    assert figures[:-1] == (7, 6, 1, 2)
    assert figures.cells == {
        (5, 1): Cell(3, 2, 15.0),
        (0, 4): Cell(1, 1, -3.0),
        (4, None): Cell(1, 1, 7.0),
        (1, 0): Cell(1, 1, 1.0),
    }
