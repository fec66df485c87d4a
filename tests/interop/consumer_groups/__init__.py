"""Requests of consumer groups (KIP-848) and Apache Kafka's responses, as text."""
