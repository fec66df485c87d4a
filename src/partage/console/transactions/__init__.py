"""Commands ``partage transactions``."""
