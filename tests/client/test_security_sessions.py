"""SASL sessions with a lifetime, and their renewal (KIP-368)."""

import asyncio
import gc

import pytest

from partage.client import (
    AuthenticationFailedError,
    ConnectionLostError,
    RequestTimeoutError,
)
from partage.client.connection import Connection
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.metadata import METADATA
from shields import shield

from .sasl_broker import SaslScript
from .sasl_client import ALL, BY_PASSWORD, PASSWORD, options
from .scripted_broker import SILENCE, ScriptedBroker


class TurnedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be advanced."""

    ahead_s = 0.0

    def time(self):
        return super().time() + self.ahead_s


class TestSessionsThatEnd:
    """KIP-368: the client authenticates again on the same connection before the session ends."""

    @pytest.fixture(autouse=True)
    def collected(self):
        """Collect garbage of earlier tests, so that its warnings do not appear in this test."""
        gc.collect()

    def run(self, main, script, given=None):
        async def whole(loop):
            async with ScriptedBroker(script) as broker:
                connection = await Connection.open(broker.address, given or options("PLAIN"))
                try:
                    await main(connection, broker, loop)
                finally:
                    connection.close()

        with asyncio.Runner(loop_factory=TurnedLoop) as runner:
            loop = runner.get_loop()
            runner.run(whole(loop))

    def sasl(self, mechanism="PLAIN", lifetime_ms=100_000):
        sasl = SaslScript(mechanism, passwords={"alice": PASSWORD})
        sasl.lifetime_ms = lifetime_ms
        return sasl

    @pytest.mark.parametrize("mechanism", BY_PASSWORD)
    def test_session_is_renewed_near_its_end(self, mechanism):
        sasl = self.sasl(mechanism)

        async def main(connection, broker, loop):
            await connection.send(METADATA, ALL)
            loop.ahead_s += 84
            await connection.send(METADATA, ALL)
            assert sasl.succeeded == 1
            loop.ahead_s += 12
            await connection.send(METADATA, ALL)
            assert sasl.succeeded == 2
            loop.ahead_s += 84  # The new session's lifetime starts with the new session
            await connection.send(METADATA, ALL)
            assert sasl.succeeded == 2
            assert broker.connections == 1

        self.run(main, sasl, options(mechanism))

    def test_session_without_end_is_not_renewed(self):
        sasl = self.sasl(lifetime_ms=0)

        async def main(connection, broker, loop):
            loop.ahead_s += 10**7
            await connection.send(METADATA, ALL)

        self.run(main, sasl)
        assert sasl.succeeded == 1

    def test_requests_wait_for_renewal(self):
        """During a renewal a broker accepts only SASL requests on the connection."""
        sasl = self.sasl()
        held = []
        is_held = asyncio.Event()

        def script(asked):
            if asked.api is HEARTBEAT:
                held.append(asked)
                is_held.set()
                return SILENCE if len(held) == 1 else HeartbeatResponse(error_code=0)
            if asked.api.name == "SaslHandshake" and sasl.succeeded:
                assert answered.done()
            return sasl(asked)

        answered = None

        async def main(connection, broker, loop):
            nonlocal answered
            beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
            answered = asyncio.ensure_future(connection.send(HEARTBEAT, beat))
            await is_held.wait()
            del broker.asked[:]
            loop.ahead_s += 16  # Less than the request timeout
            connection._renew_at = loop.time()  # The session is near its end
            more = [asyncio.ensure_future(connection.send(METADATA, ALL)) for _ in range(3)]
            more.append(asyncio.ensure_future(connection.send(HEARTBEAT, beat)))
            for _ in range(10):
                await asyncio.sleep(0)
            assert broker.asked == []
            broker._writers[0].write(held[0].reply(HeartbeatResponse(error_code=0)))
            await asyncio.gather(answered, *more)
            names = broker.names()
            assert names[:2] == ["SaslHandshake", "SaslAuthenticate"]
            assert sorted(names[2:]) == ["Heartbeat", "Metadata", "Metadata", "Metadata"]
            assert sasl.succeeded == 2

        self.run(main, script)

    def test_failed_renewal_fails_pending_requests(self, caplog):
        sasl = self.sasl()

        async def main(connection, broker, loop):
            sasl.passwords.clear()
            loop.ahead_s += 96
            sent = [connection.send(METADATA, ALL) for _ in range(3)]
            failures = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(failure) for failure in failures] == [AuthenticationFailedError] * 3
            assert not connection.is_open
            with pytest.raises(ConnectionLostError):
                await connection.send(METADATA, ALL)

        self.run(main, sasl)
        gc.collect()
        assert "never retrieved" not in caplog.text

    def test_unanswered_renewal_fails_pending_requests(self):
        sasl = self.sasl()
        clock = []

        def script(asked):
            if asked.api.name == "SaslAuthenticate" and sasl.succeeded:
                clock[0].ahead_s += 31  # More than the request timeout
                return SILENCE
            return sasl(asked)

        async def main(connection, broker, loop):
            clock.append(loop)
            loop.ahead_s += 96
            sent = [connection.send(METADATA, ALL) for _ in range(3)]
            failures = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(failure) for failure in failures] == [RequestTimeoutError] * 3
            story = f"{broker.address} did not answer SaslAuthenticate within 20000 ms"
            assert {str(failure) for failure in failures} == {story}
            assert {failure.address for failure in failures} == {broker.address}
            assert not connection.is_open

        self.run(main, script)

    def test_renewal_continues_if_first_sender_cancels(self, caplog):
        sasl = self.sasl()

        async def main(connection, broker, loop):
            loop.ahead_s += 96
            first = asyncio.create_task(connection.send(METADATA, ALL))
            second = asyncio.create_task(connection.send(METADATA, ALL))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).topics
            assert first.cancelled()
            assert sasl.succeeded == 2

        self.run(main, sasl)

    def test_failed_renewal_without_waiter_is_silent(self, caplog, monkeypatch):
        monkeypatch.setattr(asyncio, "shield", shield)
        sasl = self.sasl()

        async def main(connection, broker, loop):
            sasl.passwords.clear()
            loop.ahead_s += 96
            only = asyncio.create_task(connection.send(METADATA, ALL))
            await asyncio.sleep(0)
            only.cancel()
            while connection.is_open:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)

        self.run(main, sasl)
        gc.collect()
        assert "never retrieved" not in caplog.text
        assert "shielded" not in caplog.text

    def test_renewal_uses_new_token(self):
        tokens = iter(["one", "two"])
        sasl = self.sasl("OAUTHBEARER")
        sasl.tokens |= {"one", "two"}

        async def main(connection, broker, loop):
            loop.ahead_s += 96
            await connection.send(METADATA, ALL)

        given = options("OAUTHBEARER", sasl_oauth_token_provider=lambda: next(tokens))
        self.run(main, sasl, given)
        assert [said.split(b"Bearer ")[1][:3] for said in sasl.said] == [b"one", b"two"]
