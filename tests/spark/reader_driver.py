"""A driver that calls a streaming reader as Spark does, in this process and without Spark."""

from pyspark.sql.streaming.datasource import ReadAllAvailable

from partage.spark.options import check_stream_options, parse_options
from partage.spark.stream.reader import StreamReader


class ReaderDriver:
    """One query: its checkpoint and its current reader.

    ``checkpoint`` continues another query's checkpoint.
    """

    def __init__(self, servers, checkpoint=None, **options):
        self._given = {"kafka.bootstrap.servers": servers, "kafka.fetch.max.wait.ms": "200"} | {
            name.replace("__", "."): value for name, value in options.items()
        }
        self.checkpoint = checkpoint if checkpoint is not None else []
        self.start()

    def start(self):
        """Create a reader, as a new source process would."""
        options = parse_options(self._given)
        check_stream_options(options)
        self.reader = StreamReader(options)
        self.limit = self.reader.getDefaultReadLimit()

    @property
    def last_offset(self):
        return self.checkpoint[-1] if self.checkpoint else self.reader.initialOffset()

    def plan(self, limit=None):
        """Plan the next batch, which finishes the one before. Return its end, or None."""
        kept = self.last_offset
        end = self.reader.latestOffset(kept, limit or self.limit)
        if end == kept:
            assert end is kept, "Spark compares offsets as text"
            return None
        self.checkpoint.append(end)
        return end

    def read(self):
        """Return the rows of the last batch."""
        start = self.checkpoint[-2] if len(self.checkpoint) > 1 else self.reader.initialOffset()
        rows = []
        for partition in self.reader.partitions(start, self.checkpoint[-1]):
            for batch in self.reader.read(partition):
                columns = [batch.column(name).to_pylist() for name in ("partition", "offset")]
                rows += zip(*columns, strict=True)
        return sorted(rows)

    def batch(self, limit=None):
        """Return the rows of the next batch; an empty list if there is no batch."""
        return [] if self.plan(limit) is None else self.read()

    def all(self):
        """Read batches until there is no further one; return all rows."""
        rows = []
        while batch := self.batch():
            rows += batch
        return rows

    def available_now(self):
        """Return the rows that a query with the trigger AvailableNow reads."""
        self.reader.prepareForTriggerAvailableNow()
        rows = self.all()
        self.stop()
        return rows

    def stop(self):
        self.reader.stop()

    def kill(self):
        """End the reader like a killed process: it does not leave the group."""
        running, self.reader._runtime = self.reader._runtime, None
        if running is not None:
            running.loop.call(running.close(leaves=False))
            running.loop.stop()

    @staticmethod
    def everything():
        return ReadAllAvailable()


def group_query_options(topic, **options):
    """Return the options of a query in a group named after its topic, from the earliest offset."""
    return {"subscribe": topic, "kafka__group__id": topic, "startingOffsets": "earliest"} | options
