"""Registration of ``format("partage")`` with Spark.

When a session starts, Spark imports every module named ``pyspark_*`` and registers its
``DefaultSource``. No other step is required. The implementation is in ``partage.spark``.
"""

from __future__ import annotations

from partage.spark.source import PartageDataSource

__all__ = ["DefaultSource"]


class DefaultSource(PartageDataSource):
    """The data source class that Spark looks up by name."""
