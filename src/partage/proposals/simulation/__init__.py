"""A simulator for all designs: one coordinator at a time, many members, and a virtual clock.

Messages are objects with the size that they have on the wire. A member reads at a constant rate,
so its positions need no events. With the same seed, a world always has the same history.
"""
