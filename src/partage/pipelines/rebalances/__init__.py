"""Rebalance analysis: tables and pictures of the cost of rebalances, from ``__group_events``.

`group_analysis` analyses one group without I/O; it uses `partition_tracker`, `member_tracker`,
`commit_tracker` and `coordinator_tracker`, and returns `rows`. `tables` converts the rows to Arrow.
`local_analysis` and `spark_analysis` run the analysis in this process or on Spark. `report` adds
up, `pictures` draws, and `job` is the entry point.
"""
