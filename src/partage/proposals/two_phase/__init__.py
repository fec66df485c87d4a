"""The accepted design in the simulator of the proposals: the state machines of the product.

`coordinator.Shard` and `member.Ownership` run unchanged. The adapters here convert their outcomes
to those of the other designs.
"""
