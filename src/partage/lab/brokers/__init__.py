"""The brokers of a world: shells on the virtual clock around production components.

- `broker`: the process. `server_connection`: the broker's end of a client connection.
- `shard_host`: the driver of one shard, with its state in `local_store` or `shared_store`.
- `cluster_membership`: the broker as a member of a ZooKeeper cluster.
- `storage`, `request_handlers`, `log_maintenance`: the partitions on the broker's disk.
"""
