"""Deserializers of keys and values, with the signatures that kafka-python accepts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import msgspec

from partage.client.consumer.engine import Engine
from partage.client.consumer.errors import DeserializationError
from partage.client.consumer.fetch_state_machine import RecordRange
from partage.client.consumer.options import ConsumerOptions
from partage.client.consumer.records import Batch, Record, Records
from partage.model.topic_partition import TopicPartition

_Deserialize = Callable[[str, Any, bytes | None], Any]


class Deserializers:
    """The deserializers of one consumer."""

    def __init__(self, key: _Deserialize | None, value: _Deserialize | None) -> None:
        self._key = key
        self._value = value

    @classmethod
    def of(cls, options: ConsumerOptions) -> Self | None:
        """Return the deserializers in the options, or None if there are none."""
        if options.key_deserializer is None and options.value_deserializer is None:
            return None
        return cls(_to_call(options.key_deserializer), _to_call(options.value_deserializer))

    def apply(self, record: Record) -> Record:
        """Return a record with its deserialized key and value.

        Raises:
            DeserializationError: A deserializer raised an exception, which is the cause.
        """
        key, value = record.key, record.value
        part = "key"
        try:
            if self._key is not None:
                key = self._key(record.topic, record.headers, key)
            part = "value"
            if self._value is not None:
                value = self._value(record.topic, record.headers, value)
        except Exception as error:  # user code
            raise DeserializationError(record, part, error) from error
        return msgspec.structs.replace(record, key=key, value=value)

    def apply_to_ranges(self, engine: Engine, ranges: Sequence[RecordRange]) -> Records:
        """Return the deserialized records of collected ranges.

        If a deserializer raises, the records before the wrong one are returned. The rest is put
        back. If the first record is wrong, the next poll begins with the other partitions, which
        therefore make progress while the user retries. An interrupt puts back all records.

        Raises:
            DeserializationError: The first record is wrong; the positions are unchanged.
            CorruptRecordsError: The first range has invalid records.
        """
        batches: list[Batch] = []
        for index, one in enumerate(ranges):
            records: list[Record] = []
            end = one.from_offset
            try:
                for raw in Batch(one.chunk.content, one.from_offset, one.to_offset):
                    end = raw.offset
                    records.append(self.apply(raw))
            except Exception:
                _put_back(engine, ranges, index, end)
                if records:
                    batches.append(Batch(one.chunk.content, one.from_offset, end, records))
                if batches:
                    return Records(batches)
                engine.deliver_last(one.permit.partition)
                raise
            except BaseException:  # such as KeyboardInterrupt: the user gets no record
                _put_back(engine, ranges, 0, ranges[0].from_offset)
                raise
            batches.append(Batch(one.chunk.content, one.from_offset, one.to_offset, records))
        return Records(batches)


def _put_back(engine: Engine, ranges: Sequence[RecordRange], index: int, offset: int) -> None:
    """Put back the ranges after an index, and the range at the index from an offset on.

    Offsets without records may be between two ranges of a partition. The later range then begins
    at the end of the earlier one, because only the last range of a partition can be put back.
    """
    ends: dict[TopicPartition, int] = {}
    begins: list[int] = []
    for one in ranges:
        partition = one.permit.partition
        begins.append(ends.get(partition, one.from_offset))
        ends[partition] = one.to_offset
    for later in range(len(ranges) - 1, index, -1):
        engine.put_back(ranges[later], begins[later])
    engine.put_back(ranges[index], offset)


def _to_call(deserializer: Any) -> _Deserialize | None:
    """Return a function of topic, headers and bytes."""
    if deserializer is None:
        return None
    method = getattr(deserializer, "deserialize", None)
    if method is not None:
        call: _Deserialize = method
        return call
    return lambda topic, headers, data: deserializer(data)
