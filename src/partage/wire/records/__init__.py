"""Record batches: Kafka's message format v2."""
