"""The group coordinator's state machine, without I/O (layer 1).

An event goes in and an `Outcome` comes out. The code uses no clock, socket, file or randomness.

- ``shard`` is the entry point.
- ``join``, ``sync``, ``heartbeat``, ``leave``, ``commit`` and ``admin`` handle one kind of request
  each.
- ``rebalance`` holds the steps that several requests share.
- ``states`` and ``responses`` are the tables of the state machine; documentation is generated from
  them.
"""
