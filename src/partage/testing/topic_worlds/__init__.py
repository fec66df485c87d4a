"""Worlds in which topics change below the consumers: production brokers and `partage.Consumer`.

Records are deleted, topics are deleted and created again, transactions commit and abort. Members
change their topics, share an instance id, have assignors that fail, and speak different protocols
in one group. `partage.testing.shell_worlds` has stricter rules, and topics that only grow.
"""
