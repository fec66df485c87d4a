"""Floor 2: where a shard's state lives.

``formats`` are Kafka's own bytes for it, ``shard_log`` keeps it in a partition of
``__consumer_offsets`` on our log, where any tool that reads Kafka's topic reads ours.
"""
