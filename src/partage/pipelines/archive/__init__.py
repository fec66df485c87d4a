"""Topics to Parquet: one row for each record, whoever is killed and however many share the work.

`manifest` decides what is taken, `directory` keeps it on the disk, `batches` brings what Spark
has written into it, `running` runs the query.
"""
