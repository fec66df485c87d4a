"""Floor 5: Spark reads Kafka's topics through PySpark, ``spark.read.format("partage")``.

The source registers itself: Spark looks for modules named ``pyspark_*``, and finds
``pyspark_partage``. `prepare_java` gives Spark a Java on machines that have none.
"""

from __future__ import annotations

from partage.spark.java import Java, NoJava, prepare_java

__all__ = ["Java", "NoJava", "prepare_java"]
