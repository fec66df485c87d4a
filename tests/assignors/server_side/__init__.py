"""Assignors that run in the broker."""
