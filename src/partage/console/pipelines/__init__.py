"""Commands of ``partage pipeline``, and ``partage search``."""
