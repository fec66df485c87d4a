"""The accepted design in the simulator of the proposals, in the adapters of `product`.

`coordinator.Shard` and `member.Ownership` run unchanged.
"""
