"""Streaming source: a query as a member of a consumer group.

`offset`, `trigger_limits` and `planner` make decisions and do no I/O. `partition_source` knows the
partitions that the query owns. `stream_source` sends requests on a separate event loop. `reader`
has the class that Spark calls. `listener` commits at the end of each batch.
"""
