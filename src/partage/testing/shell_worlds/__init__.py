"""Simulated worlds of the production shells: the broker and the consumer, in virtual time.

The worlds of `partage.lab` run the state machines in shells of the simulator. These worlds run the
connections, the fetcher, the positions, the group driver and the broker's server as users do, under
the same kinds of faults, and check what a user sees.

- ``scenario`` draws the options of a world from its seed.
- ``writer`` produces records, and ``reader`` is one process with a consumer. ``manual_reader`` is
  one that assigns partitions to itself; ``admin`` changes topics and groups.
- ``delivery_rules`` checks what readers get; ``wire_watch`` sees the requests, and
  ``member_rules`` checks those of members.
- ``fault_phase`` causes faults. ``stable_groups`` checks groups after them, and ``drills`` disturbs
  these groups.
- ``runner`` runs one world.
"""
