"""Benchmarks: each compares this project with a peer in the same run."""
