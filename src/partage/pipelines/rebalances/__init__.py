"""What rebalances cost: tables and pictures from the coordinator's own events.

`history` is the analysis of one group, a core without I/O; `places` the part of it that knows who
reads what, `rows` what comes out. `tables` brings it to Arrow, `reading` and `on_spark` run it
here or on Spark, `report` adds up, `pictures` draws, and `running` is the job.
"""
