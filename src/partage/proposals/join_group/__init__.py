"""The parts that the designs with a JoinGroup request share: joining, sessions and offsets.

The documents describe them by reference to the first rewrite of the consumer (Kafka 0.9): a join
parks until every member of the previous generation has sent its own, at most for the longest
session timeout. A member whose session expires is removed. Offsets are accepted from members of the
current generation only.
"""
