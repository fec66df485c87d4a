"""The broker and the Spark session of all tests that need no kill."""

from spark.conftest import kafka, spark

__all__ = ["kafka", "spark"]
