"""Runner of scenarios in text files: requests of producers, and their effects.

The format is that of `scenario_text`. ``pytest --rewrite-scenarios`` writes the actual effects into
the files. Producers have names and share the transactional id ``t``, unless ``of=`` names another
one. Each remembers its producer id and epoch. Partitions are ``topic-number``.

=================================  ================================================================
``settings name=value ...``        settings; must come first
``init P [timeout=]``              InitProducerId; ``recover`` sends id and epoch
``add P t-0 ...``                  AddPartitionsToTxn; ``v2`` is the first write of a newer client
``verify P t-0 ...``               the check of a leader
``commit P`` / ``abort P``         EndTxn; ``v2`` is v5, ``lost`` loses the response
``describe [ID]`` / ``list``       DescribeTransactions; ListTransactions with ``states=``,
                                   ``ids=``, ``duration=``, ``pattern=``
``mark [t-0 ...]``                 the markers of these partitions, or all, are durable
``late t-0 ...``                   markers of the order before the last one are reported
``tick MS`` / ``timers``           the time advances; the armed timers
``step MS``                        the system time changes by itself
``log hold | release | fail``      records stay in doubt; become durable; are rejected
``exhaust EPOCH``                  the coordinator starts with this epoch of the only id
``crash [keep=n]``                 the coordinator crashes, and ``n`` records in doubt survive
=================================  ================================================================

Options of requests: ``id=`` and ``epoch=`` replace those of the producer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import msgspec

from partage.model.settings import TransactionSettings
from partage.model.topic_partition import TopicPartition
from partage.statemachine.linear_pattern import LinearPattern
from partage.transactions.events import (
    VERSION_0,
    VERSION_2,
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    TransactionRequest,
    VerifyPartitions,
)
from partage.transactions.outcome import MarkersToWrite
from partage.transactions.records import TransactionLogRecord, TransactionRecord
from partage.transactions.replies import (
    DescribeTransactionReply,
    ListTransactionsReply,
    PartitionsReply,
    ProducerReply,
    TransactionReply,
)

from .harness import Harness

ADMIN = "admin"


class ScenarioRunner:
    """The run of one scenario."""

    def __init__(self) -> None:
        self.harness = Harness()
        self._identities: dict[str, tuple[int, int]] = {}
        self._names: dict[object, str] = {}
        self._is_lost: set[object] = set()
        self._tickets = count()
        self._seen_orders: list[MarkersToWrite] = []
        self._commands: dict[str, Callable[[list[str], dict[str, str]], list[str] | None]] = {
            "settings": self._settings,
            "init": self._init,
            "add": self._add,
            "verify": self._verify,
            "commit": lambda words, options: self._end(words, options, is_commit=True),
            "abort": lambda words, options: self._end(words, options, is_commit=False),
            "describe": self._describe,
            "list": self._list,
            "mark": self._mark,
            "late": self._late,
            "tick": lambda words, _: self.harness.tick(int(words[0])),
            "step": self._step,
            "timers": self._timers,
            "log": self._log,
            "exhaust": self._exhaust,
            "crash": lambda _, options: self.harness.crash(int(options.get("keep", 0))),
        }

    def run(self, line: str) -> list[str]:
        """Run a command, and return a line for each effect."""
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        effects = self._commands[verb]([word for word in words if "=" not in word], options) or []
        new = [order for order in self.harness.orders if order not in self._seen_orders]
        self._seen_orders += new
        effects += [_format_record(record) for record in self.harness.appended]
        effects += [self._hear(*sent) for sent in self.harness.replies]
        effects += [_format_order(order) for order in new]
        self.harness.appended.clear()
        self.harness.replies.clear()
        return effects

    # Commands.

    def _settings(self, _: list[str], options: dict[str, str]) -> None:
        values = {name: int(value) for name, value in options.items()}
        self.harness = Harness(msgspec.structs.replace(TransactionSettings(), **values))

    def _step(self, words: list[str], _: dict[str, str]) -> None:
        self.harness.wall_offset_ms += int(words[0])

    def _identity(self, name: str, options: dict[str, str]) -> tuple[int, int]:
        producer_id, epoch = self._identities.get(name, (-1, -1))
        return int(options.get("id", producer_id)), int(options.get("epoch", epoch))

    def _ticket(self, name: str) -> object:
        ticket = next(self._tickets)
        self._names[ticket] = name
        return ticket

    def _init(self, words: list[str], options: dict[str, str]) -> None:
        producer_id, epoch = self._identity(words[0], options)
        if "recover" not in words:
            producer_id, epoch = int(options.get("id", -1)), int(options.get("epoch", -1))
        self.harness.handle(
            InitProducer(
                at_ms=self.harness.now_ms,
                reply_to=self._ticket(words[0]),
                transactional_id=options.get("of", "t"),
                timeout_ms=int(options.get("timeout", 60_000)),
                producer_id=producer_id,
                epoch=epoch,
                fresh_producer_id=self.harness.fresh_id(),
            )
        )

    def _add(self, words: list[str], options: dict[str, str]) -> None:
        producer_id, epoch = self._identity(words[0], options)
        self.harness.handle(
            AddPartitions(
                at_ms=self.harness.now_ms,
                reply_to=self._ticket(words[0]),
                transactional_id=options.get("of", "t"),
                producer_id=producer_id,
                epoch=epoch,
                partitions=_partitions(words[1:]),
                version=VERSION_2 if "v2" in words else VERSION_0,
            )
        )

    def _verify(self, words: list[str], options: dict[str, str]) -> None:
        producer_id, epoch = self._identity(words[0], options)
        self.harness.handle(
            VerifyPartitions(
                at_ms=self.harness.now_ms,
                reply_to=self._ticket(words[0]),
                transactional_id=options.get("of", "t"),
                producer_id=producer_id,
                epoch=epoch,
                partitions=_partitions(words[1:]),
            )
        )

    def _end(self, words: list[str], options: dict[str, str], *, is_commit: bool) -> None:
        producer_id, epoch = self._identity(words[0], options)
        ticket = self._ticket(words[0])
        if "lost" in words:
            self._is_lost.add(ticket)
        self.harness.handle(
            EndTransaction(
                at_ms=self.harness.now_ms,
                reply_to=ticket,
                transactional_id=options.get("of", "t"),
                producer_id=producer_id,
                epoch=epoch,
                is_commit=is_commit,
                version=VERSION_2 if "v2" in words else VERSION_0,
                fresh_producer_id=self.harness.fresh_id() if epoch >= 32_766 else -1,
            )
        )

    def _describe(self, words: list[str], _: dict[str, str]) -> None:
        self.harness.handle(
            DescribeTransaction(
                at_ms=self.harness.now_ms,
                reply_to=self._ticket(ADMIN),
                transactional_id=words[0] if words else "t",
            )
        )

    def _list(self, _: list[str], options: dict[str, str]) -> None:
        self.harness.handle(
            ListTransactions(
                at_ms=self.harness.now_ms,
                reply_to=self._ticket(ADMIN),
                states=frozenset(options["states"].split(",") if "states" in options else ()),
                producer_ids=frozenset(
                    map(int, options["ids"].split(",") if "ids" in options else ())
                ),
                duration_ms=int(options.get("duration", -1)),
                pattern=LinearPattern(options["pattern"]) if "pattern" in options else None,
            )
        )

    def _mark(self, words: list[str], _: dict[str, str]) -> None:
        orders = self.harness.orders
        assert orders, "no markers were ordered"
        for order in list(orders):
            partitions = _partitions(words) or order.partitions
            if not words:
                orders.remove(order)
            self.harness.report(order, partitions)

    def _late(self, words: list[str], _: dict[str, str]) -> None:
        self.harness.report(self._seen_orders[-2], _partitions(words))

    def _timers(self, _: list[str], __: dict[str, str]) -> list[str]:
        armed = self.harness.driver.timers.armed
        return [
            f"{deadline_ms - self.harness.now_ms} ms: {type(key).__name__}"
            for key, deadline_ms in sorted(armed.items(), key=lambda item: item[1])
        ]

    def _log(self, words: list[str], _: dict[str, str]) -> None:
        match words[0]:
            case "hold":
                self.harness.is_held = True
            case "release":
                self.harness.release()
            case "fail":
                self.harness.fail()

    def _exhaust(self, words: list[str], _: dict[str, str]) -> None:
        """Begin with a log in which the transactional id has this epoch."""
        record = self.harness.log[-1]
        assert isinstance(record, TransactionRecord)
        epoch = int(words[0])
        self.harness.log = [
            TransactionRecord(
                transactional_id=record.transactional_id,
                producer_id=record.producer_id,
                epoch=epoch,
                timeout_ms=record.timeout_ms,
                updated_ms=record.updated_ms,
            )
        ]
        self.harness.durable.clear()
        self._identities = dict.fromkeys(self._identities, (record.producer_id, epoch))
        self.harness.crash()

    # Effects.

    def _hear(self, request: TransactionRequest, reply: TransactionReply) -> str:
        name = self._names[request.reply_to]
        if isinstance(reply, ProducerReply) and not reply.error:
            if request.reply_to in self._is_lost:
                return f"{name} <- lost: {_format_reply(reply)}"
            self._identities[name] = (reply.producer_id, reply.epoch)
        return f"{name} <- {_format_reply(reply)}"


def _partitions(words: list[str]) -> tuple[TopicPartition, ...]:
    split = (word.rsplit("-", 1) for word in words if "-" in word)
    return tuple(TopicPartition(topic, int(number)) for topic, number in split)


def _format_reply(reply: TransactionReply) -> str:
    match reply:
        case ProducerReply():
            granted = "" if reply.error else f" id={reply.producer_id} epoch={reply.epoch}"
            return f"{reply.error.name}{granted}"
        case PartitionsReply():
            return " ".join(error.name for error in reply.errors)
        case DescribeTransactionReply(record=None):
            return reply.error.name
        case DescribeTransactionReply(record=TransactionRecord() as record):
            return _format_record(record).removeprefix("log: ")
        case ListTransactionsReply():
            return ", ".join(f"{one.transactional_id} {one.state}" for one in reply.records) or "-"
    raise AssertionError(reply)


def _format_record(record: TransactionLogRecord) -> str:
    if not isinstance(record, TransactionRecord):
        return f"log: {record.transactional_id} is removed"
    parts = [f"log: {record.transactional_id} {record.state} id={record.producer_id}"]
    parts.append(f"epoch={record.epoch}")
    if record.last_epoch >= 0:
        parts.append(f"last={record.last_epoch}")
    if record.next_producer_id >= 0:
        parts.append(f"next={record.next_producer_id}")
    return " ".join((*parts, *map(str, record.partitions)))


def _format_order(order: MarkersToWrite) -> str:
    result = "commit" if order.is_commit else "abort"
    partitions = " ".join(map(str, order.partitions))
    return (
        f"markers: {order.transactional_id} {result} id={order.producer_id} "
        f"epoch={order.epoch} v{order.version} {partitions}"
    )
