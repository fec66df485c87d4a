"""Consumer groups for Python and Spark over Kafka's protocol."""

__version__ = "0.1.0"
