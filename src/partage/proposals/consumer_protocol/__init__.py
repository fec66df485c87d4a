"""The consumer group protocol (KIP-848) in the simulator of the proposals.

`coordinator.Shard` and `member.consumer_group.ConsumerGroupMember` run unchanged, in the adapters
of `product`.
"""
