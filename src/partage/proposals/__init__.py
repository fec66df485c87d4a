"""The designs of consumer groups that Kafka's developers proposed.

Each of the first three is a package with two state machines without I/O, a coordinator and a
member:

- ``broker_side``: the coordinator assigns partitions, and stops and starts the consumers' fetchers.
- ``multi_assignor``: the coordinator sends all metadata to all members, and each member computes
  the assignment.
- ``single_assignor``: the coordinator sends all metadata to one member, which returns the
  assignment in a second JoinGroup request.

``join_group`` has the parts that the last two share: joining, sessions and offsets.
``machine`` has the events and outcomes of all designs. ``two_phase`` and ``consumer_protocol`` are
the accepted design and that of KIP-848, with the state machines of the ``product``.
``simulation`` runs any design on a virtual clock, ``designs`` lists them, and ``comparison``
measures them with one workload. ``sockets`` runs them as processes. ``topic_pattern`` matches the
names of topics in linear time.
"""
