"""Commands that read and write records: ``partage produce`` and ``partage consume``."""
