"""What-if simulation: a copy of a live group, and the effect of events on it."""
