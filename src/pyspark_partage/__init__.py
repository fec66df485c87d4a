"""Makes ``format("partage")`` known to Spark.

At the start of a session Spark imports every module named ``pyspark_*`` and registers its
``DefaultSource``; nothing else is to be done. Look into ``partage.spark``.
"""

from __future__ import annotations

from partage.spark.source import PartageDataSource

__all__ = ["DefaultSource"]


class DefaultSource(PartageDataSource):
    """The class that Spark looks for."""
