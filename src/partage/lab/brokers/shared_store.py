"""A shard's state in ZooKeeper, as its host in a broker among several sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from partage.lab.brokers.upkeep import RELOAD_AFTER_MS
from partage.lab.coverage import FENCED
from partage.model.errors import ErrorCode
from partage.store.shared_log import SharedLog
from partage.store.write_batcher import ShardFencedError
from partage.store.zookeeper import StoreError
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer

if TYPE_CHECKING:
    from partage.lab.brokers.broker import Broker
    from partage.lab.brokers.hosting import Host
    from partage.lab.brokers.place import Place


class SharedStore:
    """The store of one shard; ``log`` is that of the tenure that is under way, if one is."""

    host: Host
    place: Place

    def __init__(self, broker: Broker) -> None:
        self.log: SharedLog | None = None
        self._broker = broker

    def serve(self, place: Place, host: Host) -> None:
        """Be the store of this host, in this place."""
        self.place, self.host = place, host

    # For the place: see `partage.lab.brokers.place.Holder`.

    def take(self, log: SharedLog) -> None:
        """The shard is this broker's: load it."""
        self.log = log
        self.host.expect()
        self.host.load_later()

    def resign(self) -> None:
        """It is somebody else's, or may be."""
        self.log = None
        self.host.resign()

    def settle(self) -> None:
        """What waited for the lease may leave."""
        self.host.settle()

    # For the host: see `partage.lab.brokers.hosting.StateStore`.

    @property
    def epoch(self) -> int:
        """That of the tenure under way."""
        return 0 if self.log is None else self.log.epoch

    def load(self, loaded: Callable[[Sequence[Buffer]], None]) -> None:
        """Read everything, again until it succeeds."""
        if self.log is not None:
            self.place.spawn(self._load(self.log, loaded))

    async def _load(self, log: SharedLog, loaded: Callable[[Sequence[Buffer]], None]) -> None:
        try:
            content = await log.load()
        except (
            StoreError,
            MalformedError,
        ):  # a broker that has got the shard may have merged meanwhile
            self._broker.later(RELOAD_AFTER_MS, lambda: self.load(loaded))
        else:
            if log is self.log:
                loaded(content)

    def append(self, batches: Sequence[bytes], done: Callable[[ErrorCode], None]) -> bool:
        """Append the batches; they are durable when the last one is."""
        log = self.log
        if log is None:
            return False

        def written(fault: StoreError | None) -> None:
            if fault is None:
                done(ErrorCode.NONE)
            elif isinstance(fault, ShardFencedError):
                self._broker.world.struck(FENCED)
                self.place.deposed(log)
            else:
                done(ErrorCode.KAFKA_STORAGE_ERROR)

        for batch in batches[:-1]:
            self.place.append(log, batch, lambda fault: None)
        self.place.append(log, batches[-1], written)
        return True

    def open_again(self, opened: Callable[[], None]) -> None:
        """Begin a tenure anew: what is still under way of the old one is refused by ZooKeeper."""

        lost = self.log
        if lost is None:
            return

        def taken(log: SharedLog | None) -> None:
            if self.log is not lost:
                return
            if log is None:
                self._broker.later(RELOAD_AFTER_MS, lambda: self.open_again(opened))
                return
            self.log = log
            opened()

        self.place.retake(lost, taken)

    def may_answer(self) -> bool:
        """Whether no other broker can have the shard by now."""
        return self.place.may_answer()
