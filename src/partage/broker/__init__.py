"""The embedded broker: an asyncio shell around the state machines, with sockets, threads and disk.

- `net`: connections, requests, memory limits.
- `topics`: the partition logs of this broker and their maintenance.
- `coordination`: the shards of the group coordinator.
- `cluster`: several brokers that share one ZooKeeper.
- `apis`: one handler module for each API, or for a few related APIs.
"""
