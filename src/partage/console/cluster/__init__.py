"""Commands ``partage cluster``."""
