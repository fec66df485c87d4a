"""Commands of ``partage groups``."""
