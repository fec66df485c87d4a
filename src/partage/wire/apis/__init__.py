"""The messages of the protocol, one file an API."""
