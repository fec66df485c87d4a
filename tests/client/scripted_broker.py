"""A broker whose responses a test defines."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Self

from partage.model.addresses import Address
from partage.wire.api import AnyApi
from partage.wire.apis import APIS
from partage.wire.apis.api_versions import ApiVersionRange, ApiVersionsResponse
from partage.wire.apis.fetch import FetchPartitionResult, FetchResponse, FetchTopicResult
from partage.wire.apis.list_offsets import (
    EARLIEST,
    ListOffsetsPartitionResult,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)
from partage.wire.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from partage.wire.frames import encode_response_frame, parse_request_header, parse_request_prefix

#: Send nothing, and keep the connection.
SILENCE = object()
#: Close the connection.
CLOSE = object()
#: Let the client receive the bytes sent so far.
TURN = object()


class ScriptedRequest(NamedTuple):
    """A request, with a method that encodes a response."""

    api: AnyApi
    version: int
    correlation_id: int
    message: Any

    def reply(self, message: Any, *, version: int | None = None) -> bytes:
        version = self.version if version is None else version
        body = self.api.encode_response(version, message)
        header = self.api.response_header_version(version)
        return b"".join(encode_response_frame(header, self.correlation_id, body))


#: Raw bytes to send, a response message, one of the constants above, or None for the default
#: response; a list sends several in order.
Answer = Any
Script = Callable[[ScriptedRequest], Answer]


class ScriptedPort:
    """A server on a free port that closes each connection when ``serve`` ends.

    Its end closes all connections, also those that were accepted just before.
    """

    def __init__(
        self,
        serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._serve = serve
        self._host = host
        self._tls = tls
        self._writers: list[asyncio.StreamWriter] = []
        self._serving: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, 0, ssl=self._tls)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *error: object) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._server.sockets:
            loop.remove_reader(listening.fileno())
        # An accepted connection takes some turns to reach `_accept`. asyncio never closes a socket
        # that it accepted just before the listener closed (CPython issue 109564).
        for _ in range(5):
            await asyncio.sleep(0)
        self._server.close()
        for writer in self._writers:
            writer.close()
        results = await asyncio.gather(*self._serving, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()  # A client that reads no more would keep it open.
        await asyncio.sleep(0)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.append(task)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class Relay(ScriptedPort):
    """A fixed address in front of the current broker, as a load balancer or a name is."""

    def __init__(self, target: str, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(self._relay, tls=tls)
        self.target = target

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.target.split(":")
        from_broker, to_broker = await asyncio.open_connection(host, int(port))
        pumps = [
            asyncio.ensure_future(_pump(reader, to_broker)),
            asyncio.ensure_future(_pump(from_broker, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pumps:
                each.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            to_broker.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


class ScriptedBroker(ScriptedPort):
    """A broker on a free port. Requests go to ``script``, then to the default responses."""

    def __init__(
        self,
        script: Script = lambda asked: None,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(self._respond, host=host, tls=tls)
        self.script = script
        self.asked: list[ScriptedRequest] = []
        self.connections = 0
        self.leader_id = 1
        self.node_id = 1
        self.replica_ids = [1]
        self.topics = {"t": 1}
        self.ends = (0, 100)
        self.peers: list[ScriptedBroker] = []

    def names(self) -> list[str]:
        """Names of the requested APIs, without ApiVersions."""
        return [asked.api.name for asked in self.asked if asked.api.name != "ApiVersions"]

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            # Kafka's limit; a TLS handshake looks like a larger frame
            if size > 100 * 1024 * 1024:
                return
            asked = _asked(await reader.readexactly(size))
            self.asked.append(asked)
            answer = self.script(asked)
            if answer is None:
                answer = self.default(asked)
            for part in answer if isinstance(answer, list) else [answer]:
                if part is CLOSE:
                    return
                if part is TURN:
                    for _ in range(3):
                        await asyncio.sleep(0)
                elif part is not SILENCE:
                    writer.write(part if isinstance(part, bytes) else asked.reply(part))
                    await writer.drain()

    def default(self, asked: ScriptedRequest) -> Any:
        return getattr(self, f"_{asked.api.name}")(asked)

    def _ApiVersions(self, asked: ScriptedRequest) -> Any:  # noqa: N802 - found by its API's name
        return api_versions(APIS.values())

    def _Metadata(self, asked: ScriptedRequest) -> Any:  # noqa: N802
        names = asked.message.topics
        wanted = list(self.topics) if names is None else [topic.name for topic in names]
        brokers = [
            MetadataBroker(node_id=b.node_id, host=b.address.host, port=b.address.port)
            for b in (self, *self.peers)
        ]
        return MetadataResponse(
            brokers=brokers, controller_id=1, topics=[self._topic(name) for name in wanted]
        )

    def _topic(self, name: str) -> MetadataTopic:
        if name not in self.topics:
            return MetadataTopic(error_code=3, name=name, partitions=[])
        partitions = [
            MetadataPartition(
                error_code=0,
                partition_index=index,
                leader_id=self.leader_id,
                leader_epoch=4,
                replica_nodes=list(self.replica_ids),
                isr_nodes=[1],
            )
            for index in range(self.topics[name])
        ]
        return MetadataTopic(error_code=0, name=name, topic_id=b"t" * 16, partitions=partitions)

    def _ListOffsets(self, asked: ScriptedRequest) -> Any:  # noqa: N802
        def result(part: Any) -> ListOffsetsPartitionResult:
            offset = self.ends[0] if part.timestamp_ms == EARLIEST else self.ends[1]
            return ListOffsetsPartitionResult(
                partition_index=part.partition_index, error_code=0, offset=offset
            )

        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResult(name=t.name, partitions=[result(p) for p in t.partitions])
                for t in asked.message.topics
            ]
        )


def _asked(frame: bytes) -> ScriptedRequest:
    key, version, correlation_id = parse_request_prefix(frame)
    api = APIS[key]
    _, pos = parse_request_header(api, version, frame)
    return ScriptedRequest(api, version, correlation_id, api.decode_request(version, frame, pos))


def api_versions(apis: Iterable[AnyApi], error: int = 0) -> ApiVersionsResponse:
    """Return the ApiVersions response of a broker with these APIs."""
    ranges = [
        ApiVersionRange(api_key=api.key, min_version=api.version_min, max_version=api.version_max)
        for api in apis
    ]
    return ApiVersionsResponse(error_code=error, api_keys=ranges)


def fetched(
    asked: ScriptedRequest,
    records: bytes = b"",
    *,
    error: int = 0,
    end: int = 100,
    preferred_replica: int = -1,
) -> FetchResponse:
    """Return a Fetch response for one partition."""
    result = FetchPartitionResult(
        partition_index=0,
        error_code=error,
        high_watermark=end,
        preferred_read_replica=preferred_replica,
        records=[records],
    )
    topic = asked.message.topics[0]
    return FetchResponse(
        responses=[
            FetchTopicResult(topic=topic.topic, topic_id=topic.topic_id, partitions=[result])
        ]
    )
