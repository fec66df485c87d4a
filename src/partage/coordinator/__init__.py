"""Floor 1: the group coordinator's core, without I/O.

An event comes in, an `Outcome` goes out, and nothing else happens: no clock, no socket, no file,
no randomness. ``shard`` is the door; ``join``, ``sync``, ``heartbeat``, ``leave``, ``commit`` and
``admin`` each handle one kind of request; ``rebalance`` holds the steps they share; ``states`` and
``answers`` are the tables of the state machine, which the documentation is generated from.
"""
