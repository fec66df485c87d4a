"""The state machine of the transaction coordinator (layer 1).

It decides only. It has no I/O, clock, randomness or wire formats. A shard is the state of one
partition of ``__transaction_state``. It handles one event at a time and returns an outcome: records
to append, timers to arm, replies and markers that must wait until all records are durable.
"""
