"""Consumer groups of the consumer group protocol (KIP-848).

The members declare subscriptions, an assignor in the broker computes the target assignment, and
each member moves to it by its own heartbeats.

- ``records``, ``events``, ``actions`` and ``replies`` are the interface.
- ``target`` and ``reconciliation`` are pure functions.
"""
