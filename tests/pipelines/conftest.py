"""Broker and Spark session for tests that kill neither."""

from spark.conftest import kafka, spark

__all__ = ["kafka", "spark"]
