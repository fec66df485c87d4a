"""Simulation of events on a copy of a live group ("what if")."""
