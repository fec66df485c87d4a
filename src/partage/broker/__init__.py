"""Floor 4: the embedded broker. An asyncio shell around the cores: sockets, threads, the disk."""
