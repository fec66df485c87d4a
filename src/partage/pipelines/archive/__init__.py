"""Topics to Parquet: exactly one row for each record, with several runs and with killed runs.

`deduplication` and `manifest` decide which offsets to archive. `directory` stores the manifest and
the files. `batches` adds the files that Spark has staged. `job` runs the query.
"""
