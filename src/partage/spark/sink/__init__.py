"""Sink: writes DataFrames at least once, and streams exactly once, with librdkafka's producer.

`options` parses the options and `columns` converts rows to records. `task_producer` sends records
and waits for all acknowledgements. `writers` has the classes that Spark calls, and `row_marks` lets
a reader drop duplicates that a repeated batch has written.

A stream that delivers exactly once has the writer in `transactional_writer`. `transaction_flow` has
its steps without I/O, `batch_decision` what they store, and `transaction_client` their requests.
"""

from __future__ import annotations

from partage.spark.sink.row_marks import MARK, drop_duplicates

__all__ = ["MARK", "drop_duplicates"]
