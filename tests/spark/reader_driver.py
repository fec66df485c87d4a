"""A streaming reader driven as Spark drives it, in this process and without Spark."""

from pyspark.sql.streaming.datasource import ReadAllAvailable

from partage.spark.options import check_stream_options, parse_options
from partage.spark.stream.reader import StreamReader


class ReaderDriver:
    """One query: its checkpoint, and a reader at a time.

    ``checkpoint`` is the one of another query, which is gone on with.
    """

    def __init__(self, servers, checkpoint=None, **options):
        self._given = {"kafka.bootstrap.servers": servers, "kafka.fetch.max.wait.ms": "200"} | {
            name.replace("__", "."): value for name, value in options.items()
        }
        self.checkpoint = checkpoint if checkpoint is not None else []
        self.start()

    def start(self):
        """A new source process, so to speak."""
        options = parse_options(self._given)
        check_stream_options(options)
        self.reader = StreamReader(options)
        self.limit = self.reader.getDefaultReadLimit()

    @property
    def last_offset(self):
        return self.checkpoint[-1] if self.checkpoint else self.reader.initialOffset()

    def plan(self, limit=None):
        """Begin a batch, and with that end the one before; its end, None if there is none."""
        kept = self.last_offset
        end = self.reader.latestOffset(kept, limit or self.limit)
        if end == kept:
            assert end is kept, "Spark compares offsets as text"
            return None
        self.checkpoint.append(end)
        return end

    def read(self):
        """The rows of the last batch, of another copy of the reader, as executors have it."""
        start = self.checkpoint[-2] if len(self.checkpoint) > 1 else self.reader.initialOffset()
        rows = []
        for partition in self.reader.partitions(start, self.checkpoint[-1]):
            for batch in self.reader.read(partition):
                columns = [batch.column(name).to_pylist() for name in ("partition", "offset")]
                rows += zip(*columns, strict=True)
        return sorted(rows)

    def batch(self, limit=None):
        """The rows of the next batch; empty if there is none for now."""
        return [] if self.plan(limit) is None else self.read()

    def all(self):
        """Everything, batch by batch, until there is nothing more."""
        rows = []
        while batch := self.batch():
            rows += batch
        return rows

    def available_now(self):
        """What a query with that trigger reads."""
        self.reader.prepareForTriggerAvailableNow()
        rows = self.all()
        self.stop()
        return rows

    def stop(self):
        self.reader.stop()

    def kill(self):
        """The process is gone, without a word to anybody."""
        running, self.reader._runtime = self.reader._runtime, None
        if running is not None:
            running.loop.call(running.close(leaves=False))
            running.loop.stop()

    @staticmethod
    def everything():
        return ReadAllAvailable()


def group_query_options(topic, **options):
    """Options of a query in a group named after its topic, which reads it from its beginning."""
    return {"subscribe": topic, "kafka__group__id": topic, "startingOffsets": "earliest"} | options
