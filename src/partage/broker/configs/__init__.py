"""Configs of brokers and groups that clients alter: storage, validation and effect."""
