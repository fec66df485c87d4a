"""The clients of a world: consumers, producers and rogue clients."""
