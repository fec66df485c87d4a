"""Partition logs over an injected disk, and the catalogue of topics.

The log decides without waiting and returns the I/O to perform. A shell performs it:

- `partition`: the log of one partition: append, read, retention, compaction;
- `validator`, `producer_state`: checks of produced batches (Kafka's LogValidator and
  ProducerStateManager);
- `checkpoints`: the durable position of each partition;
- `disk`, `memory_disk`, `io`, `layout`: the disk interface, its in-memory implementation, durable
  writes and file names;
- `segments`: segment files, their indexes, and look-ups by offset, timestamp and leader epoch;
- `compaction`: plans a compaction, rewrites segments in a thread, and swaps the new files in;
- `recovery`: opens a partition after a clean or an unclean shutdown, and truncates damaged logs;
- `catalogue`: topics and their configs.
"""
