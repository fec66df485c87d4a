"""A small design for tests of the shells: a coordinator that answers, stores and closes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from partage.model.topic_partition import TopicPartition
from partage.proposals import machine
from partage.proposals.sockets.codec import Codec
from partage.proposals.sockets.coordinator_server import CoordinatorServer, ServerLimits
from partage.wire.primitives import MalformedError
from partage.wire.types import Message

WAIT_S = 30.0


class Words(Message):
    """A request, or its response. The first word is the command."""

    words: list[str]


_JSON = msgspec.json.Decoder(Words)


class WordsCodec(Codec):
    """Frames of JSON. A damaged frame that begins with an exclamation mark gets a response."""

    frame_bytes_max = 1000

    def encode(self, message: Message) -> bytes:
        data = msgspec.json.encode(message)
        if len(data) > self.frame_bytes_max:
            raise ValueError(f"{len(data)} bytes are too many")
        return len(data).to_bytes(4, "big") + data

    def decode(self, frame: bytes) -> Message:
        try:
            return _JSON.decode(frame[4:])
        except msgspec.DecodeError as error:
            raise MalformedError(str(error)) from error

    def error_response(self, frame: bytes) -> Message | None:
        return Words(words=["damaged"]) if frame[4:5] == b"!" else None


class ToyCoordinator:
    """It answers ``echo``, stores ``store``, closes after ``close``, and arms a timer at ``timer``.

    ``repeat N`` gets N responses, ``fail`` is a bug, ``huge`` gets a response without a frame, and
    ``count TEXT`` gets the length of the text.
    """

    def __init__(self) -> None:
        self.events: list[machine.Event] = []
        self.waiting: list[machine.Connection] = []

    def apply(self, record: Any) -> None:
        raise AssertionError(record)

    def count(self, kind: type[machine.Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    def handle(self, event: machine.Event) -> machine.CoordinatorOutcome[Any, Any]:
        self.events.append(event)
        outcome: machine.CoordinatorOutcome[Any, Any] = machine.CoordinatorOutcome(event.at_ms)
        match event:
            case machine.TimerFired():
                for connection in self.waiting:
                    outcome.send(connection, Words(words=["fired"]))
            case machine.MessageReceived(message=Words(words=["fail", *_])):
                raise AssertionError("a bug")
            case machine.MessageReceived(message=Words(words=["timer", delay_ms])):
                self.waiting.append(event.connection)
                outcome.arm_timer("timer", int(delay_ms))
            case machine.MessageReceived(message=Words(words=["huge"])):
                outcome.send(event.connection, Words(words=["x" * 2000]))
            case machine.MessageReceived(message=Words(words=["count", text])):
                outcome.send(event.connection, Words(words=[str(len(text))]))
            case machine.MessageReceived(message=Words(words=["repeat", number])):
                for _ in range(int(number)):
                    outcome.send(event.connection, Words(words=["x" * 900]))
            case machine.MessageReceived(message=Words(words=words)):
                outcome.send(event.connection, Words(words=words))
                if words[0] == "store":
                    outcome.records.append(words[1])
                if words[0] == "close":
                    outcome.closes.append(event.connection)
        return outcome


class GatedStore:
    """A store whose writes wait for ``gate``, and then for turns of the event loop."""

    def __init__(self) -> None:
        self.delay_turns = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.records: list[Any] = []
        self.error: Exception | None = None
        self.writes = 0

    async def append(self, records: Sequence[Any]) -> None:
        self.writes += 1
        await self.gate.wait()
        for _ in range(self.delay_turns):
            await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.records.extend(records)


class Client:
    """A raw client of the toy coordinator."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *words: str) -> None:
        self.writer.write(WordsCodec().encode(Words(words=list(words))))

    def send_raw(self, data: bytes) -> None:
        self.writer.write(len(data).to_bytes(4, "big") + data)

    async def receive(self) -> list[str] | None:
        """Return the words of the next response; None if the connection was closed."""
        try:
            size = await asyncio.wait_for(self.reader.readexactly(4), WAIT_S)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        data = await self.reader.readexactly(int.from_bytes(size, "big"))
        return _JSON.decode(data).words

    async def ask(self, *words: str) -> list[str] | None:
        self.send(*words)
        return await self.receive()


class Stage:
    """A served toy coordinator and its clients."""

    def __init__(self, limits: ServerLimits | None, codec: type[WordsCodec]) -> None:
        self.machine = ToyCoordinator()
        self.store = GatedStore()
        self.errors: list[Exception] = []
        self.may_act = True
        self.clients: list[Client] = []
        self.address = ("", 0)
        self.server = CoordinatorServer(
            self.machine,
            codec,
            self.store,
            self.errors.append,
            may_act=lambda: self.may_act,
            limits=limits,
        )

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection(*self.address))
        self.clients.append(client)
        return client


def on_stage(
    play: Callable[[Stage], Awaitable[None]],
    limits: ServerLimits | None = None,
    codec: type[WordsCodec] = WordsCodec,
) -> None:
    """Run a test with a served coordinator."""

    async def run() -> None:
        stage = Stage(limits, codec)
        stage.address = await stage.server.listen("127.0.0.1", 0)
        try:
            await play(stage)
        finally:
            stage.store.gate.set()
            await stage.server.close()
            for client in stage.clients:
                client.writer.close()

    asyncio.run(run())


def partitions(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in numbers)
