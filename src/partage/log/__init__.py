"""Floor 2: a partition's log over an injected disk."""
