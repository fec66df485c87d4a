"""The brokers of a world: production brokers in processes on the virtual clock.

- `broker`, `shell`: the processes of one broker, with their faults.
- `recorded_broker`: the production broker in a process, with what the world records.
- `clock_loop`, `broker_transport`, `environment`: the event loop, connections, clocks and ids.
- `group_shards`, `transaction_shards`, `recorded_shard_host`: the hosts and stores of shards, which
  record what they do.
- `recorded_logs`, `stored_partitions`, `compaction_recorder`: the logs on the disk.
- `zookeeper_session`: a session with the simulated ZooKeeper.
- `observed_response`: the responses that observers see.
"""
