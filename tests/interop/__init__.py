"""Interoperability tests of Partage with other projects' clients and brokers."""
