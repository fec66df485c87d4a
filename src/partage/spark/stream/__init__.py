"""The streaming source: a query as a member of a consumer group.

`offset`, `sharing` and `planner` decide and do no I/O. `holding` is what of the topics is this
query's, `stream` asks brokers on a loop of its own, `reader` is what Spark calls, `listener`
commits at the end of each batch.
"""
