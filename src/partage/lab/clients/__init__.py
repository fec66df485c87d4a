"""The clients of a world: consumers around the member's core, producers, and strangers."""
