"""Simulated worlds of the production shells: the broker and the consumer, in virtual time.

The worlds of `partage.lab` run the state machines in shells of the simulator. These worlds run the
connections, the fetcher, the positions, the group driver and the broker's server as users do, under
the same kinds of faults, and check what a user sees.

- ``scenario`` draws the options of a world from its seed.
- ``writer`` produces records, and ``reader`` is one process with a consumer.
- ``delivery_rules`` checks what readers get; ``wire_watch`` sees the requests.
- ``runner`` runs one world, and ``swarm`` many.
"""
