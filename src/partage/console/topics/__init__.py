"""Commands of ``partage topics``."""
