"""Segment files, their indexes, and look-ups in them."""
