"""The brokers of a world: shells on the virtual clock around the broker's own parts.

``broker`` is the process, ``serving`` its end of connections, ``hosting`` what drives a shard, over
``local_store`` or ``shared_store``; ``place`` is its place among others; ``storage``, ``topics``
and ``upkeep`` are about its disk.
"""
