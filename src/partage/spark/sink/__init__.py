"""Writing: DataFrames and streams into topics, at least once, through librdkafka's producer.

`options` reads what was asked for, `columns` what of a row goes where, `producing` sends and waits
for every acknowledgement, `writers` are the classes that Spark calls, `marks` let a reader drop
what a batch that was run again has written twice.
"""

from __future__ import annotations

from partage.spark.sink.marks import MARK, drop_doubles

__all__ = ["MARK", "drop_doubles"]
