"""Floor 1: a group member's core, on the client's side, without I/O.

An event comes in, an `Outcome` goes out, and nothing else happens: no clock, no socket, no wire
version. ``membership`` is the member of any group: joining, syncing, heartbeating, leaving, for
whatever protocol is embedded in it. ``ownership`` stands on top of it for members that own
partitions, as consumers do: what is revoked when, and which callback is due. ``states`` and
``reactions`` are the tables of the state machine, which ``docs/members.md`` is generated from.
"""
