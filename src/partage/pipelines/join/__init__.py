"""Join of two co-partitioned topics: one row for each record of the left topic.

Spark stores the state of its built-in stream joins with a query. A partition that moves to another
query loses that state. This job keeps no state besides the topics. In each batch it reads all left
records that the output lacks, and the right records in their time window. So any owner of a
partition can continue. `window` makes decisions, `dataframes` reads ranges with Spark, and `job`
runs the query.
"""
