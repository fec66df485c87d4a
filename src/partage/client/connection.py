"""A connection to one broker, with any number of requests in flight."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
from collections.abc import Mapping
from typing import Self, cast

import msgspec

from partage.client.errors import (
    BrokerResponseError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    InvalidResponseError,
    RequestTimeoutError,
    UnsupportedApiError,
)
from partage.client.frame_reader import FrameReader, InvalidFrameSizeError
from partage.client.jitter import between
from partage.client.options import ClientOptions
from partage.client.receive_low_watermark import ReceiveLowWatermark
from partage.client.security.credentials import Credentials
from partage.client.security.errors import AuthenticationRequiredError, SecurityError
from partage.client.security.handshake import authenticate, required_mechanisms
from partage.client.security.options import InvalidSecurityOptionError, SecurityOptions
from partage.client.security.tls import (
    has_tls_reason,
    is_tls_alert,
    plaintext_port_error,
    tls_error,
    tls_port_error,
)
from partage.client.security.tls_probe import PROBE_TIMEOUT_MS, speaks_tls
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.model.version import VERSION
from partage.wire.api import AnyApi, Api, Req, Res
from partage.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from partage.wire.frames import FRAME_LENGTH, encode_request_frame, parse_response_header
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer

ApiVersionRanges = Mapping[int, tuple[int, int]]

#: The part of a session's lifetime after which it is renewed (KIP-368). It is random in this range,
#: so that the connections of many clients do not renew at the same time.
_RENEW_AT = (0.85, 0.95)


class Connection(asyncio.BufferedProtocol):
    """A connection to a broker, opened by `open`.

    `open` encrypts the connection, asks for the API versions of the broker, and authenticates.
    Requests are written at once and may be answered in any order; correlation ids match them. A
    request that times out or gets an invalid response closes the connection, because later
    responses could not be trusted. All pending requests then fail.

    If the session has a limited lifetime, it is renewed before the next request (KIP-368). That
    request waits until the requests in flight are answered, because a broker accepts no other
    request then.
    """

    def __init__(self, address: Address, options: ClientOptions, credentials: Credentials) -> None:
        self.address = address
        self._options = options
        self._credentials = credentials
        self._frames = FrameReader(options.response_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._in_flight: dict[int, asyncio.Future[Buffer]] = {}
        #: The timeouts of requests whose senders no longer wait.
        self._abandoned_timeouts: dict[int, asyncio.TimerHandle] = {}
        self._last_id = 0
        self._versions: ApiVersionRanges = {}
        self.finalized_features: Mapping[str, int] = {}  # levels by name (KIP-584)
        self._renew_at = math.inf
        self._renewal: asyncio.Task[None] | None = None
        #: True if the broker closed the connection without answering any request after ApiVersions.
        self.was_closed_unanswered = False
        self._has_answered = False

    @classmethod
    async def open(
        cls, address: Address, options: ClientOptions, credentials: Credentials | None = None
    ) -> Self:
        """Connect, negotiate versions and authenticate.

        Args:
            address: The broker.
            options: Timeouts, limits and security.
            credentials: Those of the cluster; new ones from the options if None.

        Raises:
            ConnectError: No process listens there, or it is not a Kafka broker.
            SecurityError: One side does not trust the other, or their protocols do not match.
        """
        credentials = credentials or Credentials(options.security)
        connection = await cls._connected(address, options, credentials)
        timeout_ms = options.connect_timeout_ms
        try:
            await connection._negotiate_versions(timeout_ms)
            async with asyncio.timeout(timeout_ms / 1000):
                await connection._authenticate()
        except SecurityError:
            connection.close()
            raise
        except ClientError as error:
            connection.close()
            is_closed = isinstance(error, ConnectionLostError) and not connection._versions
            if is_closed and await _is_tls_expected(address, credentials):
                raise tls_port_error(address) from None
            raise ConnectError(
                address, f"it is not a Kafka broker, or failed to answer ({error})"
            ) from None
        except TimeoutError:
            connection.close()
            raise ConnectError(
                address, f"authentication did not complete within {timeout_ms} ms"
            ) from None
        except BaseException:
            connection.close()
            raise
        return connection

    @classmethod
    async def _connected(
        cls, address: Address, options: ClientOptions, credentials: Credentials
    ) -> Self:
        timeout_ms = options.connect_timeout_ms
        host, port = address
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                context = await credentials.context()
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: cls(address, options, credentials), host, port, ssl=context
                )
        except TimeoutError:
            hint = "; does this port speak TLS?" if credentials.options.uses_tls else ""
            raise ConnectError(address, f"no connection within {timeout_ms} ms{hint}") from None
        # The file was valid when the client was created
        except InvalidSecurityOptionError as error:
            raise ConnectError(address, str(error)) from None
        except OSError as error:
            if has_tls_reason(error):
                has_one = credentials.has_certificate
                raise tls_error(address, error, has_certificate=has_one) from error
            is_reached = isinstance(error, ConnectionResetError | ssl.SSLEOFError)
            if is_reached and await _is_plaintext_expected(address, options, credentials):
                raise plaintext_port_error(address) from error
            raise ConnectError(address, _reason(error)) from error
        return connection

    @property
    def is_open(self) -> bool:
        """True if requests can be sent."""
        return self._transport is not None

    def close(self) -> None:
        """Close the connection. Pending requests fail with `ConnectionLostError`."""
        self._end(ConnectionLostError(self.address, "closed by this client"))

    def version_of(self, api: AnyApi, version_max: int | None = None) -> int:
        """Return the highest version that both sides support, at most ``version_max``.

        Without ``version_max`` it is at most `Api.by_name_max`.

        Raises:
            UnsupportedApiError: There is no common version.
        """
        ours = api.by_name_max if version_max is None else min(version_max, api.version_max)
        theirs = self._versions.get(api.key)
        if theirs is None:
            raise UnsupportedApiError(
                self.address, api.name, _range(api.version_min, ours), "in no version"
            )
        lowest, highest = theirs
        version = min(ours, highest)
        if version < max(api.version_min, lowest):
            raise UnsupportedApiError(
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
        """Send a request and return its response. The caller checks error codes inside the
        response.

        Args:
            api: The API.
            message: The request.
            version_max: The highest version to use; `Api.by_name_max` if None.
            timeout_ms: The time to wait for the response; ``request_timeout_ms`` if None.

        Raises:
            UnsupportedApiError: See `version_of`.
            ConnectionLostError, RequestTimeoutError, InvalidResponseError: The connection is
            closed.
        """
        version = self.version_of(api, version_max)
        if self._renewal is not None or self._now() >= self._renew_at:
            await self._wait_for_renewal()
        frame = await self._exchange(
            api, version, message, timeout_ms or self._options.request_timeout_ms
        )
        self._has_answered = True
        return self._decoded(api, version, frame)

    async def check_sasl_not_required(self) -> None:
        """Check if a broker that closes our connections unanswered requires SASL.

        Raises:
            AuthenticationRequiredError: It requires SASL.
            ClientError: Like `send`.
        """
        if not self._options.security.uses_sasl:
            wanted = await required_mechanisms(self._request)
            if wanted is not None:
                self.close()
                uses_tls = self._options.security.uses_tls
                raise AuthenticationRequiredError(self.address, wanted, uses_tls=uses_tls)

    async def _request(self, api: Api[Req, Res], message: Req) -> Res:
        version = self.version_of(api)
        frame = await self._exchange(api, version, message, self._options.request_timeout_ms)
        return self._decoded(api, version, frame)

    async def _authenticate(self) -> None:
        mechanism = self._credentials.mechanism(self.address)
        if mechanism is None:
            return
        begun = self._now()
        lifetime_ms = await authenticate(self._request, mechanism)
        share = between(*_RENEW_AT)
        self._renew_at = begun + lifetime_ms / 1000 * share if lifetime_ms else math.inf

    async def _wait_for_renewal(self) -> None:
        """Wait until one shared task has renewed the session for all senders."""
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())
            # Retrieve the exception: the sender may have given up by then
            self._renewal.add_done_callback(lambda task: task.cancelled() or task.exception())
        renewal = self._renewal
        # Not `asyncio.shield`: on Python 3.14, it logs the exception after a cancellation
        await asyncio.wait({renewal})
        renewal.result()

    async def _renew(self) -> None:
        try:
            if self._in_flight:
                await asyncio.wait(list(self._in_flight.values()))
            async with asyncio.timeout(self._options.request_timeout_ms / 1000):
                await self._authenticate()
        except TimeoutError:
            timeout_ms = self._options.request_timeout_ms
            failure = RequestTimeoutError(self.address, "SaslAuthenticate", timeout_ms)
            self._end(failure)
            raise failure from None
        except ClientError as error:
            self._end(error)
            raise
        finally:
            self._renewal = None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _negotiate_versions(self, timeout_ms: int) -> None:
        """Negotiate API versions. A broker that does not support ours names its own (KIP-511)."""
        request = ApiVersionsRequest(
            client_software_name="partage-python", client_software_version=VERSION
        )
        # v3 rather than v4: they differ only in values that old clients could not read
        # (KAFKA-17011).
        answer = await self._api_versions(3, request, timeout_ms)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            spoken = [r.max_version for r in answer.api_keys if r.api_key == API_VERSIONS.key]
            # Brokers before Kafka 2.4 do not name their versions; all support v0.
            version = min(spoken[0], 2) if spoken else 0
            answer = await self._api_versions(version, request, timeout_ms)
        if answer.error_code:
            raise BrokerResponseError(answer.error_code, "ApiVersions")
        self._versions = {r.api_key: (r.min_version, r.max_version) for r in answer.api_keys}
        self.finalized_features = {
            each.name: each.max_version_level for each in answer.finalized_features
        }

    async def _api_versions(
        self, version: int, request: ApiVersionsRequest, timeout_ms: int
    ) -> ApiVersionsResponse:
        frame = await self._exchange(API_VERSIONS, version, request, timeout_ms)
        # The error code comes first in all versions. With this error the rest of the response is
        # v0.
        if frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            version = 0
        return self._decoded(API_VERSIONS, version, frame)

    async def _exchange(
        self, api: Api[Req, Res], version: int, message: Req, timeout_ms: int
    ) -> Buffer:
        if self._transport is None:
            raise ConnectionLostError(self.address, "it is already closed")
        self._last_id = correlation_id = self._last_id + 1 & 0x7FFFFFFF
        body = api.encode_request(version, message)
        frame = encode_request_frame(api, version, correlation_id, self._options.client_id, body)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Buffer] = loop.create_future()
        self._in_flight[correlation_id] = answer
        self._transport.write(b"".join(frame))
        alarm = loop.call_later(
            timeout_ms / 1000, self._time_out, correlation_id, api.name, timeout_ms
        )
        try:
            return await answer
        finally:
            # If the abandoned request stays unanswered, the connection is dead.
            if correlation_id in self._in_flight:
                self._abandoned_timeouts[correlation_id] = alarm
            else:
                alarm.cancel()

    def _time_out(self, correlation_id: int, name: str, timeout_ms: int) -> None:
        answer = self._in_flight.get(correlation_id)
        if answer is not None:
            failure = RequestTimeoutError(self.address, name, timeout_ms)
            if not answer.done():
                answer.set_exception(failure)
            self._end(ConnectionLostError(self.address, str(failure)))

    def _decoded(self, api: Api[Req, Res], version: int, frame: Buffer) -> Res:
        try:
            _, pos = parse_response_header(api, version, frame)
            return api.decode_response(version, memoryview(frame), pos)
        except MalformedError as error:
            failure = InvalidResponseError(self.address, f"{api.name} v{version}: {error}")
            self._end(failure)
            raise failure from error

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # Cast: uvloop's transport does not inherit from asyncio.Transport
        self._transport = cast(asyncio.Transport, transport)
        self._readiness = ReceiveLowWatermark(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._frames.free_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        try:
            frames = self._frames.receive(nbytes)
        except InvalidFrameSizeError as error:
            uses_tls = self._options.security.uses_tls
            is_tls = not uses_tls and not self._versions and is_tls_alert(error.start)
            nonsense = InvalidResponseError(self.address, str(error))
            self._end(tls_port_error(self.address) if is_tls else nonsense)
            return
        self._readiness.set_missing_bytes(self._frames.missing_bytes)
        for frame in frames:
            self._complete_request(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending requests after the transport closed."""
        if not self._versions and has_tls_reason(exc):
            # In TLS 1.3 the broker checks the client certificate after the handshake.
            has_one = self._credentials.has_certificate
            self._end(tls_error(self.address, exc, has_certificate=has_one))
            return
        if self._transport is not None:
            self.was_closed_unanswered = bool(self._versions) and not self._has_answered
        why = "the broker closed it" if exc is None else _reason(exc)
        self._end(ConnectionLostError(self.address, why))

    def _complete_request(self, frame: Buffer) -> None:
        correlation_id = (
            FRAME_LENGTH.unpack_from(frame)[0] if len(frame) >= FRAME_LENGTH.size else -1
        )
        answer = self._in_flight.pop(correlation_id, None)
        if answer is None:
            self._end(
                InvalidResponseError(self.address, "a response with an unknown correlation id")
            )
        elif not answer.done():
            answer.set_result(frame)
        elif alarm := self._abandoned_timeouts.pop(correlation_id, None):
            alarm.cancel()

    def _end(self, failure: ClientError) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        for alarm in self._abandoned_timeouts.values():
            alarm.cancel()
        self._abandoned_timeouts.clear()
        waiting, self._in_flight = self._in_flight, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(failure)


async def _is_tls_expected(address: Address, credentials: Credentials) -> bool:
    """True if a port that closed a plaintext connection expects TLS."""
    is_plain = not credentials.options.uses_tls
    return is_plain and credentials.is_first_probe(address) and await speaks_tls(address)


async def _is_plaintext_expected(
    address: Address, options: ClientOptions, credentials: Credentials
) -> bool:
    """True if a port that aborted the TLS handshake is a plaintext port of a broker."""
    if not credentials.options.uses_tls or not credentials.is_first_probe(address):
        return False
    plain = msgspec.structs.replace(
        options, security=SecurityOptions(), connect_timeout_ms=PROBE_TIMEOUT_MS
    )
    without = Credentials(plain.security)
    without.is_first_probe(address)
    try:
        (await Connection.open(address, plain, without)).close()
    except ClientError:
        return False
    return True


def _range(lowest: int, highest: int) -> str:
    return f"v{lowest} to v{highest}"


def _reason(error: Exception) -> str:
    """Return the system's error text, without asyncio's words around it."""
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        # asyncio's text is "Connect call failed ('127.0.0.1', 9092)"; the address is in the message
        # anyway.
        return os.strerror(error.errno) if error.errno > 0 else error.strerror
    return str(error) or type(error).__name__
