"""The embedded broker: an asyncio shell around the state machines, with sockets, threads and disk.

- `net`: connections, requests, memory limits.
- `topics`: the partition logs of this broker and their maintenance.
- `coordination`: the shards of the group coordinator.
- `cluster`: several brokers that share one ZooKeeper.
- `apis`: one handler module for each API, or for a few related APIs.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    # Locks of data directories, limits of file descriptors and syncs of directories are POSIX.
    raise ImportError(
        "the broker needs Linux or macOS: run it in WSL or in a container. Partage's clients and "
        "command line tools work on Windows"
    )
