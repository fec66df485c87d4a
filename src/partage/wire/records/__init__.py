"""Record batches: Kafka's message format v2.

- ``batch``: batch headers, and iteration over batches;
- ``encoder``: builds batches;
- ``decoder``: reads records with one of two implementations, ``_native`` (compiled) or ``plain``,
  into the types of ``columns``;
- ``compression``: compression, and decompression within a size limit;
- ``validation``: a broker's checks of a produced batch.
"""
