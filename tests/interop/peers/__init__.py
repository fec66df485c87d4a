"""Other projects' software, fetched by a script into ``.peers/``.

The package is importable as ``interop.peers`` if ``tests`` is on the path. pytest adds it; the
scripts in ``bench`` add it themselves.
"""
