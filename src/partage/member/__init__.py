"""The state machine of a group member, on the client side, without I/O.

An event goes in, an `Outcome` comes out. There is no clock, no socket and no wire version inside.
`MembershipStateMachine` is a member of any group: it joins, syncs, sends heartbeats and leaves, for
any embedded protocol. `Ownership` builds on it for members that own partitions, such as consumers:
it decides when partitions are revoked and which callback is due. ``states`` and ``reactions`` hold
the tables of the state machine; ``docs/members.md`` is generated from them.
"""
