"""Runs a state machine: timers, append-then-release, and loading, without I/O (layer 3)."""
