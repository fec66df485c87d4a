"""One connection, with correct and faulty brokers."""

import asyncio
import struct

import pytest

from partage.client import (
    ClientOptions,
    ConnectError,
    ConnectionLostError,
    InvalidResponseError,
    RequestTimeoutError,
    UnsupportedApiError,
)
from partage.client.connection import Connection
from partage.wire.apis import APIS
from partage.wire.apis.fetch import FETCH
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.metadata import METADATA, MetadataRequest

from .scripted_broker import CLOSE, SILENCE, ScriptedBroker, ScriptedRequest, api_versions

ALL = MetadataRequest(topics=None)
OPTIONS = ClientOptions(request_timeout_ms=20_000, connect_timeout_ms=20_000)


def on(name, *answers):
    """Return a script: the n-th request of this API gets the n-th response, later ones the last."""
    left = list(answers)

    def script(asked):
        if asked.api.name != name:
            return None
        return left.pop(0) if len(left) > 1 else left[0]

    return script


def beat(member="m"):
    return HeartbeatRequest(group_id="g", generation_id=1, member_id=member)


def run(main, script=lambda asked: None, options=OPTIONS):
    """Run ``main(connection, broker)`` with a connection to a scripted broker."""

    async def whole():
        async with ScriptedBroker(script) as broker:
            connection = await Connection.open(broker.address, options)
            try:
                return await main(connection, broker)
            finally:
                connection.close()

    return asyncio.run(whole())


def test_request_is_answered():
    async def main(connection, broker):
        return await connection.send(METADATA, ALL)

    assert [topic.name for topic in run(main).topics] == ["t"]


def test_highest_common_version_is_used():
    async def main(connection, broker):
        await connection.send(METADATA, ALL)
        await connection.send(METADATA, ALL, version_max=5)
        return [asked.version for asked in broker.asked]

    assert run(main) == [3, 13, 5]


def test_responses_match_requests_in_any_order():
    held = []

    def script(asked):
        if asked.api is not HEARTBEAT:
            return None
        held.append(asked)
        if len(held) < 3:
            return SILENCE
        code = {"a": 1, "b": 2, "c": 3}
        return [
            one.reply(HeartbeatResponse(error_code=code[one.message.member_id]))
            for one in reversed(held)
        ]

    async def main(connection, broker):
        beats = [connection.send(HEARTBEAT, beat(member)) for member in "abc"]
        return [answer.error_code for answer in await asyncio.gather(*beats)]

    assert run(main, script) == [1, 2, 3]


def test_response_may_arrive_byte_by_byte():
    def script(asked):
        if asked.api is not HEARTBEAT:
            return None
        return [bytes([byte]) for byte in asked.reply(HeartbeatResponse(error_code=27))]

    async def main(connection, broker):
        return await connection.send(HEARTBEAT, beat())

    assert run(main, script).error_code == 27


class TestVersions:
    def test_older_api_versions_request_is_retried(self):
        """KIP-511: the error response has a v0 body."""

        def script(asked):
            if asked.api.name != "ApiVersions" or asked.version == 0:
                return None
            return asked.reply(api_versions([], error=35), version=0)

        async def main(connection, broker):
            return [asked.version for asked in broker.asked], connection.version_of(METADATA)

        assert run(main, script) == ([3, 0], 13)

    def test_rejection_may_name_a_version(self):
        def script(asked):
            if asked.api.name != "ApiVersions" or asked.version == 2:
                return None
            answer = api_versions([APIS[18]], error=35)
            answer.api_keys[0].max_version = 2
            return asked.reply(answer, version=0)

        async def main(connection, broker):
            return [asked.version for asked in broker.asked]

        assert run(main, script) == [3, 2]

    def test_no_common_version_raises(self):
        def script(asked):
            if asked.api.name != "ApiVersions":
                return None
            answer = api_versions([METADATA, FETCH])
            answer.api_keys[1].min_version, answer.api_keys[1].max_version = 0, 3
            return answer

        async def main(connection, broker):
            with pytest.raises(
                UnsupportedApiError, match="Fetch v0 to v3; this client supports v4 to v17"
            ):
                connection.version_of(FETCH)
            with pytest.raises(
                UnsupportedApiError, match="Heartbeat in no version; this client supports v0"
            ):
                await connection.send(HEARTBEAT, beat())

        run(main, script)


class TestOpening:
    def test_closed_port_raises_connect_error(self):
        async def main():
            async with ScriptedBroker() as broker:
                address = broker.address
            await Connection.open(address, OPTIONS)

        with pytest.raises(ConnectError, match=r"127\.0\.0\.1:\d+: Connection refused"):
            asyncio.run(main())

    def test_unknown_host_raises_connect_error(self):
        async def main():
            from partage.client import Address

            await Connection.open(Address("no-such-host.invalid", 9092), OPTIONS)

        with pytest.raises(ConnectError, match=r"^no-such-host\.invalid:9092: "):
            asyncio.run(main())

    def test_http_server_raises_connect_error(self):
        with pytest.raises(ConnectError, match="is not a Kafka broker"):
            run(None, on("ApiVersions", b"HTTP/1.1 400 Bad Request\r\n\r\n"))

    def test_closing_listener_raises_connect_error(self):
        with pytest.raises(ConnectError, match="the broker closed it"):
            run(None, on("ApiVersions", CLOSE))

    def test_silent_listener_raises_connect_error(self):
        options = ClientOptions(connect_timeout_ms=50)
        with pytest.raises(ConnectError, match="did not answer ApiVersions within 50 ms"):
            run(None, on("ApiVersions", SILENCE), options)

    def test_api_versions_error_raises_connect_error(self):
        with pytest.raises(ConnectError, match="ApiVersions: CLUSTER_AUTHORIZATION_FAILED"):
            run(None, on("ApiVersions", api_versions([], error=31)))


class TestEnding:
    """A connection that closes fails its pending requests and rejects new ones."""

    @pytest.mark.parametrize(
        ("answer", "failure", "story"),
        [
            (CLOSE, ConnectionLostError, "the broker closed it"),
            ([struct.pack(">ii", 90, 2) + b"half", CLOSE], ConnectionLostError, "broker closed it"),
            (
                struct.pack(">i", 2**31 - 1),
                InvalidResponseError,
                "2147483647 bytes; it must be 1 to 104857600",
            ),
            (struct.pack(">i", -5), InvalidResponseError, "the frame size is -5 bytes"),
            (struct.pack(">i", 0), InvalidResponseError, "the frame size is 0 bytes"),
            (
                struct.pack(">ii", 4, 77),
                InvalidResponseError,
                "a response with an unknown correlation id",
            ),
            (
                struct.pack(">ih", 2, 7),
                InvalidResponseError,
                "a response with an unknown correlation id",
            ),
            (
                struct.pack(">ii", 5, 2) + b"\x00",
                InvalidResponseError,
                "Heartbeat v4: .* ends before its last field",
            ),
        ],
    )
    def test_invalid_response_fails_pending_requests(self, answer, failure, story):
        async def main(connection, broker):
            first = asyncio.ensure_future(connection.send(HEARTBEAT, beat()))
            second = asyncio.ensure_future(connection.send(METADATA, ALL))
            with pytest.raises(failure, match=story):
                await first
            with pytest.raises((InvalidResponseError, ConnectionLostError)):
                await second
            assert not connection.is_open
            with pytest.raises(ConnectionLostError, match="it is already closed"):
                await connection.send(METADATA, ALL)

        def script(asked):
            return {"Heartbeat": answer, "Metadata": SILENCE}.get(asked.api.name)

        run(main, script)

    def test_request_timeout_closes_connection(self):
        async def main(connection, broker):
            other = asyncio.ensure_future(connection.send(METADATA, ALL))
            with pytest.raises(RequestTimeoutError, match="did not answer Heartbeat within 30 ms"):
                await connection.send(HEARTBEAT, beat(), timeout_ms=30)
            with pytest.raises(ConnectionLostError, match="did not answer Heartbeat"):
                await other

        def script(asked):
            return SILENCE if asked.api.name in ("Heartbeat", "Metadata") else None

        run(main, script)

    def test_cancelled_request_without_answer_closes_connection(self):
        """The next request would wait in vain, too."""

        async def main(connection, broker):
            beating = asyncio.ensure_future(connection.send(HEARTBEAT, beat(), timeout_ms=30))
            other = asyncio.ensure_future(connection.send(METADATA, ALL))
            await asyncio.sleep(0)
            beating.cancel()
            with pytest.raises(ConnectionLostError, match="did not answer Heartbeat within 30 ms"):
                await other
            assert not connection.is_open

        def script(asked):
            return SILENCE if asked.api.name in ("Heartbeat", "Metadata") else None

        run(main, script)

    def test_cancelled_request_keeps_connection(self):
        late: list[ScriptedRequest] = []

        def script(asked):
            if asked.api is HEARTBEAT:
                late.append(asked)
                return SILENCE
            return None

        async def main(connection, broker):
            beating = asyncio.ensure_future(connection.send(HEARTBEAT, beat()))
            await connection.send(METADATA, ALL)  # By now the Heartbeat response has arrived too
            beating.cancel()
            broker.script = lambda asked: [
                late[0].reply(HeartbeatResponse(error_code=0)),
                broker.default(asked),
            ]
            answer = await connection.send(METADATA, ALL)
            assert connection.is_open
            assert not connection._abandoned_timeouts
            return [topic.name for topic in answer.topics]

        assert run(main, script) == ["t"]

    def test_close_fails_pending_requests(self):
        async def main(connection, broker):
            beating = asyncio.ensure_future(connection.send(HEARTBEAT, beat()))
            await asyncio.sleep(0)
            connection.close()
            with pytest.raises(ConnectionLostError, match="closed by this client"):
                await beating

        run(main, on("Heartbeat", SILENCE))
