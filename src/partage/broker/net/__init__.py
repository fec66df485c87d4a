"""Client connections: listener, frames, requests and the memory limit for large requests."""
