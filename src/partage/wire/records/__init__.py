"""Record batches: Kafka's message format v2.

``batch`` reads headers and walks over batches, ``encode`` builds them, ``decode`` reads their
records by whichever of two decoders there is (``_native``, compiled, and ``plain``), into the
forms of ``columns``; ``compression`` unpacks within a bound, and ``validate`` is what a broker
asks of a batch that a producer sent.
"""
