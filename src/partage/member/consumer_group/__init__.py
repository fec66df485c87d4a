"""The state machine of a member with the consumer group protocol (KIP-848), without I/O.

`ConsumerGroupMember` joins, reports and leaves with ConsumerGroupHeartbeat. The coordinator assigns
partitions; the member moves to its assignment: it revokes partitions, adds others, and confirms
both by its next heartbeat. It uses the events, actions and timers of `partage.member` where they
are the same, and so the same shell can run it. ``states``, ``reactions`` and ``timers`` hold the
tables of the state machine; ``docs/members.md`` is generated from them. `partage.coordinator` has a
package of the same name for the other side.
"""
