"""Other people's software, fetched by script into ``.peers/`` and run from there.

Importable as ``interop.peers`` wherever ``tests`` is on the path: pytest puts it there, the
scripts in ``bench`` do so themselves.
"""
