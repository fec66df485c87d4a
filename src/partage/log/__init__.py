"""Floor 2: a partition's log over an injected disk, and the catalogue of topics.

It decides at once and returns the I/O still to be done; a shell does it:

- `topics`, `config`: which topics there are, and what may be asked of them;
- `markers`, `recovery`: what is known durable, and opening a partition's log with it;
- `partition`: the log, to append to, read from, and take old records out of;
- `performing`: doing writes and steps so that they are durable;
- `rewriting`, `swapping`: compaction's heavy part, for a thread;
- `cutting`: giving up the end of a damaged log;
- `disk`, `memory`: the disk as an interface, and one in memory.
"""
