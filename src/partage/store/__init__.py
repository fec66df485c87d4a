"""Durable state of shards and of the cluster (layer 2).

- ``record_formats``: Kafka's binary formats of a shard's records.
- ``shard_log``: a shard's records in a partition of ``__consumer_offsets``, which any tool that
  reads Kafka's topic can read.
- ``zk_schema``, ``shared_log``, ``shared_topics``, ``cluster_registry``: the state of a cluster in
  ZooKeeper.
"""
