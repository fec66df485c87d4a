"""Partage and other people's clients and brokers, put together."""
