"""Forecast of a group's lag while its partitions change owners.

Each partition grows at its own rate. A member reads a fixed number of records per second, from its
most delayed partitions first. So the lags of its partitions are what they would be without reading,
cut off at one level. The sum of the lags needs no computation for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from partage.lab.whatif.handovers import ReaderChange
from partage.lab.whatif.live_group import LivePartition
from partage.model.topic_partition import TopicPartition

#: Minimum time between two samples of the total lag.
_SAMPLE_INTERVAL_MS: Final = 100
#: The forecast continues this long after the last change, if the group has caught up by then.
_TAIL_MS: Final = 10_000
#: Time limit for catching up after the last change.
_CATCH_UP_MAX_MS: Final = 600_000


class LagForecast(msgspec.Struct, kw_only=True):
    """The lag of a group in records, by second.

    Attributes:
        by_second: The lag.
        undisturbed: The lag without any change.
        peak: The maximum lag.
        added: The maximum excess over ``undisturbed``.
        caught_up_ms: When the excess first returned to zero after its maximum; None if it did not.
    """

    by_second: list[int]
    undisturbed: list[int]
    peak: int
    added: int = 0
    caught_up_ms: int | None = 0


class _Reader:
    """A member: the lags of its partitions as of ``since_ms``, and their sum."""

    def __init__(self, speed: float) -> None:
        self.lags: dict[TopicPartition, float] = {}
        self._speed = speed
        self._since_ms = 0
        self._total = 0.0
        self._inflow = 0.0

    def total(self, at_ms: int) -> float:
        """Return the sum of its lags."""
        grown = (self._inflow - self._speed) * (at_ms - self._since_ms) / 1000
        return max(0.0, self._total + grown) if self.lags else 0.0

    def update_lags(self, at_ms: int, rates: Mapping[TopicPartition, float]) -> None:
        """Compute each partition's lag at a time."""
        total, elapsed_s = self.total(at_ms), (at_ms - self._since_ms) / 1000
        unread = {p: lag + rates[p] * elapsed_s for p, lag in self.lags.items()}
        level = _cut_off_level(list(unread.values()), total)
        self.lags = {p: min(lag, level) for p, lag in unread.items()}
        self._since_ms = at_ms

    def restart_clock(self, at_ms: int, rates: Mapping[TopicPartition, float]) -> None:
        """Continue with the current lags."""
        self._since_ms = at_ms
        self._total = sum(self.lags.values())
        self._inflow = sum(rates[p] for p in self.lags)


def _cut_off_level(amounts: list[float], total: float) -> float:
    """Return the level to which amounts must be cut so that their sum is ``total``."""
    left = total
    amounts.sort()
    for number, amount in enumerate(amounts):
        share = left / (len(amounts) - number)
        if amount >= share:
            return share
        left -= amount
    return max(amounts, default=0.0)


class _UnreadPartitions:
    """The partitions that no member reads. Each grows from its lag when it was added."""

    def __init__(self, rates: Mapping[TopicPartition, float]) -> None:
        self._rates = rates
        self._left: dict[TopicPartition, tuple[float, int]] = {}
        self._at_zero = 0.0  # their sum, extrapolated to time 0
        self._inflow = 0.0

    def add(self, partition: TopicPartition, lag: float, at_ms: int) -> None:
        self._left[partition] = (lag, at_ms)
        rate = self._rates[partition]
        self._inflow += rate
        self._at_zero += lag - rate * at_ms / 1000

    def remove(self, partition: TopicPartition, at_ms: int) -> float:
        """Remove a partition that a member reads from now on, and return its lag."""
        lag, since_ms = self._left.pop(partition)
        rate = self._rates[partition]
        self._inflow -= rate
        self._at_zero -= lag - rate * since_ms / 1000
        return lag + rate * (at_ms - since_ms) / 1000

    def total(self, at_ms: int) -> float:
        return self._at_zero + self._inflow * at_ms / 1000 if self._left else 0.0


class _GroupLag:
    """The lags of a group; the time starts at 0."""

    def __init__(self, partitions: Iterable[LivePartition], speed: float) -> None:
        self._rates = {TopicPartition(p.topic, p.index): p.rate for p in partitions}
        self._speed = speed
        self._waiting = _UnreadPartitions(self._rates)
        self._readers: dict[str, _Reader] = {}
        self._reader_of: dict[TopicPartition, _Reader] = {}
        for p in partitions:
            self._waiting.add(TopicPartition(p.topic, p.index), p.lag, 0)

    def set_partitions(
        self, process: str, partitions: frozenset[TopicPartition], at_ms: int
    ) -> None:
        """Set the partitions that a process reads from now on."""
        reader = self._readers.setdefault(process, _Reader(self._speed))
        reader.update_lags(at_ms, self._rates)
        # Sorted, because the order of additions changes the last digits of a sum.
        for gone in sorted(reader.lags.keys() - partitions):
            self._waiting.add(gone, reader.lags.pop(gone), at_ms)
            del self._reader_of[gone]
        for new in sorted((partitions & self._rates.keys()) - reader.lags.keys()):
            if new in self._reader_of:  # its previous reader has not noticed the handover yet
                self._take_from(self._reader_of[new], new, at_ms)
            reader.lags[new] = self._waiting.remove(new, at_ms)
            self._reader_of[new] = reader
        reader.restart_clock(at_ms, self._rates)

    def _take_from(self, reader: _Reader, partition: TopicPartition, at_ms: int) -> None:
        reader.update_lags(at_ms, self._rates)
        self._waiting.add(partition, reader.lags.pop(partition), at_ms)
        reader.restart_clock(at_ms, self._rates)

    def total(self, at_ms: int) -> float:
        readers = sum(reader.total(at_ms) for reader in self._readers.values())
        return readers + self._waiting.total(at_ms)


def forecast_lag(
    timeline: Sequence[ReaderChange],
    partitions: Sequence[LivePartition],
    speed: float,
    begin_ms: int,
    end_ms: int,
) -> LagForecast:
    """Forecast the group's lag from ``begin_ms`` until it has caught up after ``end_ms``, or the
    time limit.
    """
    group, undisturbed = (_GroupLag(partitions, speed) for _ in range(2))
    for change in (change for change in timeline if change.at_ms < begin_ms):
        group.set_partitions(change.process, change.partitions, 0)
        undisturbed.set_partitions(change.process, change.partitions, 0)
    found = LagForecast(by_second=[], undisturbed=[], peak=sum(p.lag for p in partitions))
    looked_ms = 0

    def look(at_ms: int) -> tuple[int, int]:
        nonlocal looked_ms
        looked_ms = at_ms
        lag, otherwise = round(group.total(at_ms)), round(undisturbed.total(at_ms))
        found.peak = max(found.peak, lag)
        if lag - otherwise > found.added:
            found.added, found.caught_up_ms = lag - otherwise, None
        elif lag <= otherwise and found.caught_up_ms is None:
            found.caught_up_ms = at_ms
        return lag, otherwise

    changes = [change for change in timeline if change.at_ms >= begin_ms]
    at = 0
    settled_ms = end_ms - begin_ms
    for now_ms in range(0, settled_ms + _CATCH_UP_MAX_MS, 1_000):
        while at < len(changes) and changes[at].at_ms - begin_ms <= now_ms:
            change_ms = changes[at].at_ms - begin_ms
            if change_ms - looked_ms >= _SAMPLE_INTERVAL_MS:
                look(change_ms)
            group.set_partitions(changes[at].process, changes[at].partitions, change_ms)
            at += 1
        lag, otherwise = look(now_ms)
        found.by_second.append(lag)
        found.undisturbed.append(otherwise)
        if now_ms > settled_ms + _TAIL_MS and found.caught_up_ms is not None:
            break
    return found
