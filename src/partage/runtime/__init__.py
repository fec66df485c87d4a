"""Floor 3: drives a core. Timers, append-then-release, loading; no I/O of its own."""
