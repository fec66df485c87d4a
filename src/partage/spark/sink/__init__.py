"""Sink: writes DataFrames and streams to topics, at least once, with librdkafka's producer.

`options` parses the options and `columns` converts rows to records. `task_producer` sends records
and waits for all acknowledgements. `writers` has the classes that Spark calls. `row_marks` lets a
reader drop duplicates that a repeated batch has written.
"""

from __future__ import annotations

from partage.spark.sink.row_marks import MARK, drop_duplicates

__all__ = ["MARK", "drop_duplicates"]
