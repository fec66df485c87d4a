"""Worlds of `partage.lab` whose brokers are production brokers."""
