"""One connection to one broker: requests out, any number at a time, each with its answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Self, cast

from partage import __version__
from partage.client.addresses import Address
from partage.client.errors import (
    BadResponse,
    CannotConnect,
    ClientError,
    ConnectionLost,
    RequestRefused,
    RequestTimedOut,
    UnsupportedApi,
)
from partage.client.frame_reader import FrameReader, FrameTooLarge
from partage.client.options import ClientOptions
from partage.model.errors import ErrorCode
from partage.wire.api import AnyApi, Api, Req, Res
from partage.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from partage.wire.frames import LENGTH, request_frame, response_body
from partage.wire.primitives import Malformed

Versions = Mapping[int, tuple[int, int]]


class Connection(asyncio.BufferedProtocol):
    """A connection; made by `open`, which also asks for the versions that the broker speaks.

    Requests are written at once and answered in any order; each answer finds its request by the
    correlation id. A request that is not answered in time, or answered with nonsense, ends the
    connection: what follows on it could not be trusted. Whoever waits on it then is told.
    """

    def __init__(self, address: Address, options: ClientOptions) -> None:
        self.address = address
        self._options = options
        self._frames = FrameReader(options.response_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[bytearray]] = {}
        self._last_id = 0
        self._versions: Versions = {}

    @classmethod
    async def open(cls, address: Address, options: ClientOptions) -> Self:
        """Connect and agree on versions.

        Raises:
            CannotConnect: nobody listens there, or it is no broker.
        """
        loop = asyncio.get_running_loop()
        timeout_ms = options.connect_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: cls(address, options), address.host, address.port
                )
        except TimeoutError:
            raise CannotConnect(address, f"no connection within {timeout_ms} ms") from None
        except OSError as error:
            raise CannotConnect(address, _reason(error)) from error
        try:
            await connection._agree(timeout_ms)
        except ClientError as error:
            connection.close()
            raise CannotConnect(address, f"it does not answer as a broker does ({error})") from None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None

    def close(self) -> None:
        """Close the connection; requests that still wait are told so."""
        self._end(ConnectionLost(self.address, "closed by this client"))

    def version_of(self, api: AnyApi, version_max: int | None = None) -> int:
        """The highest version that both sides speak, at most ``version_max``.

        Raises:
            UnsupportedApi: there is none.
        """
        ours = api.version_max if version_max is None else min(version_max, api.version_max)
        theirs = self._versions.get(api.key)
        if theirs is None:
            raise UnsupportedApi(
                self.address, api.name, _range(api.version_min, ours), "not at all"
            )
        lowest, highest = theirs
        version = min(ours, highest)
        if version < max(api.version_min, lowest):
            raise UnsupportedApi(
                self.address, api.name, _range(api.version_min, ours), _range(lowest, highest)
            )
        return version

    async def send(
        self,
        api: Api[Req, Res],
        message: Req,
        *,
        version_max: int | None = None,
        timeout_ms: int | None = None,
    ) -> Res:
        """Send a request and wait for its answer; ``timeout_ms`` None is ``request_timeout_ms``.

        Error codes inside the answer are the caller's to look at.

        Raises:
            UnsupportedApi: see `version_of`.
            ConnectionLost, RequestTimedOut, BadResponse: the connection is at its end.
        """
        version = self.version_of(api, version_max)
        frame = await self._exchange(
            api, version, message, timeout_ms or self._options.request_timeout_ms
        )
        return self._decoded(api, version, frame)

    async def _agree(self, timeout_ms: int) -> None:
        """Learn the broker's versions; one that does not know ours says which it does (KIP-511)."""
        asked = ApiVersionsRequest(
            client_software_name="partage-python", client_software_version=__version__
        )
        # v3 rather than v4, which differs only in what old clients could not read (KAFKA-17011).
        answer = await self._api_versions(3, asked, timeout_ms)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            spoken = [r.max_version for r in answer.api_keys if r.api_key == API_VERSIONS.key]
            # Brokers before Kafka 2.4 do not even say; all of them know v0.
            version = min(spoken[0], 2) if spoken else 0
            answer = await self._api_versions(version, asked, timeout_ms)
        if answer.error_code:
            raise RequestRefused(answer.error_code, "ApiVersions")
        self._versions = {r.api_key: (r.min_version, r.max_version) for r in answer.api_keys}

    async def _api_versions(
        self, version: int, asked: ApiVersionsRequest, timeout_ms: int
    ) -> ApiVersionsResponse:
        frame = await self._exchange(API_VERSIONS, version, asked, timeout_ms)
        # The error stands first in all versions, and with this one the rest is v0.
        if frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            version = 0
        return self._decoded(API_VERSIONS, version, frame)

    async def _exchange(
        self, api: Api[Req, Res], version: int, message: Req, timeout_ms: int
    ) -> bytearray:
        if self._transport is None:
            raise ConnectionLost(self.address, "it is closed")
        self._last_id = correlation_id = self._last_id + 1 & 0x7FFFFFFF
        body = api.encode_request(version, message)
        frame = request_frame(api, version, correlation_id, self._options.client_id, body)
        answer: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = answer
        self._transport.write(b"".join(frame))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError:
            failure = RequestTimedOut(self.address, api.name, timeout_ms)
            self._end(ConnectionLost(self.address, str(failure)))
            raise failure from None

    def _decoded(self, api: Api[Req, Res], version: int, frame: bytearray) -> Res:
        try:
            _, pos = response_body(api, version, frame)
            return api.decode_response(version, memoryview(frame), pos)
        except Malformed as error:
            failure = BadResponse(self.address, f"{api.name} v{version}: {error}")
            self._end(failure)
            raise failure from error

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by behaviour only

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes arrived."""
        try:
            frames = self._frames.received(nbytes)
        except FrameTooLarge as error:
            self._end(BadResponse(self.address, str(error)))
            return
        for frame in frames:
            self._deliver(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        why = "the broker closed it" if exc is None else _reason(exc)
        self._end(ConnectionLost(self.address, why))

    def _deliver(self, frame: bytearray) -> None:
        correlation_id = LENGTH.unpack_from(frame)[0] if len(frame) >= LENGTH.size else -1
        answer = self._waiting.pop(correlation_id, None)
        if answer is None:
            self._end(BadResponse(self.address, "an answer to a request that was not sent"))
        elif not answer.done():  # or whoever asked has given up
            answer.set_result(frame)

    def _end(self, failure: ClientError) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(failure)


def _range(lowest: int, highest: int) -> str:
    return f"v{lowest} to v{highest}"


def _reason(error: Exception) -> str:
    """What the system says, without asyncio's own wording around it."""
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        # asyncio words it "Connect call failed ('127.0.0.1', 9092)"; the address is told anyway.
        return os.strerror(error.errno) if error.errno > 0 else error.strerror
    return str(error) or type(error).__name__
