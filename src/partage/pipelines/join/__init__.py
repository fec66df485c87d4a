"""Two co-partitioned topics joined, stream to stream, one row for each record of the left one.

Spark keeps the state of its own joins with a query, and a partition that moves to another query
leaves it behind. Here the topics are the state: what a query has not put out yet of a partition it
reads again, from the earliest offset that the output lacks, and with it what of the right topic
lies within reach. So whoever owns a partition can go on with it. `windows` decides, `reading` asks
Spark for ranges, `running` runs the query.
"""
