"""Commands ``partage configs``."""
