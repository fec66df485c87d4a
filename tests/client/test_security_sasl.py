"""SASL: each mechanism, what is refused and how, and sessions that end."""

import asyncio
import gc
import logging
import subprocess
import sys
import time

import pytest

from partage import Consumer
from partage.client import (
    Address,
    AuthenticationFailed,
    AuthenticationRequired,
    BrokerNotProven,
    ClientOptions,
    Cluster,
    ConnectionLost,
    RetryPolicy,
    SecurityError,
    SecurityOptions,
    Token,
    TokenRefused,
    TokenUnavailable,
    UnknownMechanism,
    WrongSecurityProtocol,
)
from partage.client.connection import Connection
from partage.client.security.credentials import warn_of_readable
from partage.client.security.mechanisms import Scram
from partage.wire.apis import APIS
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from partage.wire.apis.metadata import METADATA, MetadataRequest
from partage.wire.apis.sasl_authenticate import SaslAuthenticateResponse
from partage.wire.apis.sasl_handshake import SaslHandshakeResponse

from .authority import Authority
from .sasl_broker import ILLEGAL_SASL_STATE, Sasl, unsigned_jwt
from .scripted import CLOSE, SILENCE, ScriptedBroker, api_versions

ALL = MetadataRequest(topics=None)
BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "pa=ss,wörd"


def options(mechanism, password=PASSWORD, **more):
    """Of a client that gives up late, so that what is retried for ever is noticed."""
    security = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        **({} if mechanism == "OAUTHBEARER" else {"sasl_username": "alice"}),
        **({} if mechanism == "OAUTHBEARER" else {"sasl_password": password}),
        **more,
    }
    return ClientOptions(
        security=SecurityOptions(**security),
        connect_timeout_ms=20_000,
        request_timeout_ms=20_000,
        retries=RetryPolicy(timeout_ms=600_000),
    )


def topics(options, script, **broker):
    async def main():
        async with (
            ScriptedBroker(script, **broker) as serving,
            Cluster([serving.address], options) as cluster,
        ):
            return list(await cluster.topics(["t"])), serving

    return asyncio.run(main())


def refused(kind, options, script, match):
    """It fails so, at once, and with nothing secret said."""
    with pytest.raises(kind, match=match) as raised:
        topics(options, script)
    assert not raised.value.is_retriable
    return str(raised.value)


class TestPasswords:
    @pytest.mark.parametrize("mechanism", BY_PASSWORD)
    def test_the_right_one(self, mechanism):
        names, broker = topics(options(mechanism), Sasl(mechanism, passwords={"alice": PASSWORD}))
        assert names == ["t"]
        assert broker.names()[:2] == ["SaslHandshake", "SaslAuthenticate"]
        assert broker.asked[1].version == 1

    @pytest.mark.parametrize("mechanism", BY_PASSWORD)
    def test_a_wrong_one(self, mechanism, caplog):
        sasl = Sasl(mechanism, passwords={"alice": PASSWORD})
        with caplog.at_level(logging.DEBUG):
            said = refused(
                AuthenticationFailed,
                options(mechanism, "open sesame"),
                sasl,
                f"by {mechanism} failed: .*Invalid username or password; check sasl_username",
            )
        assert "open sesame" not in said + caplog.text
        assert sasl.succeeded == 0

    def test_a_wrong_one_of_a_member_of_a_group(self):
        """It is told in poll, and not left to try for ever."""

        async def main():
            async with ScriptedBroker(Sasl("PLAIN", passwords={"alice": PASSWORD})) as serving:
                member = Consumer(
                    str(serving.address),
                    group_id="g",
                    security_protocol="SASL_PLAINTEXT",
                    sasl_mechanism="PLAIN",
                    sasl_username="alice",
                    sasl_password="open sesame",
                )
                async with member, asyncio.timeout(60):
                    member.subscribe(["t"])
                    with pytest.raises(AuthenticationFailed, match="check sasl_username"):
                        await member.poll(30_000)

        asyncio.run(main())

    def test_over_tls(self, tmp_path):
        authority = Authority(tmp_path)
        server = authority.issue("server", "127.0.0.1").server()
        trusted = {"security_protocol": "SASL_SSL", "ssl_cafile": str(authority.certificate)}
        sasl = Sasl("PLAIN", passwords={"alice": PASSWORD})
        assert topics(options("PLAIN", **trusted), sasl, tls=server)[0] == ["t"]

    def test_one_that_anybody_could_read_is_warned_of(self, caplog):
        warn_of_readable.cache_clear()
        Cluster("127.0.0.1:9092", options("PLAIN"))
        assert "without TLS: anybody on the way can read the secret" in caplog.text
        caplog.clear()
        Cluster("127.0.0.1:9092", options("PLAIN"))
        assert caplog.text == "", "once is enough"
        Cluster("127.0.0.1:9092", options("SCRAM-SHA-256"))
        assert caplog.text == ""

    def test_plain_claims_to_be_nobody_else(self):
        """CVE-2017-12610: whom one may act as is the broker's to derive from the user."""
        sasl = Sasl("PLAIN", passwords={"alice": PASSWORD})
        topics(options("PLAIN"), sasl)
        assert sasl.said == [f"\0alice\0{PASSWORD}".encode()]

    def test_names_and_passwords_are_sent_as_they_are(self):
        """SASLprep would change the one and refuse the other; Kafka does without."""
        scram = Scram(Address("kafka", 9092), "SCRAM-SHA-256", "½,", "☕")
        assert asyncio.run(scram.first()).startswith("n,,n=½=2C,r=".encode())

    def test_a_broker_that_repeats_the_password_is_not_quoted(self):
        def script(asked):
            if asked.api.name != "SaslAuthenticate":
                return Sasl("PLAIN")(asked)
            why = f"no user alice with {PASSWORD}\n"
            return SaslAuthenticateResponse(error_code=58, error_message=why, auth_bytes=b"")

        said = refused(AuthenticationFailed, options("PLAIN"), script, "no user alice with ")
        assert PASSWORD not in said
        assert "\n" not in said


class LyingSasl(Sasl):
    """Changes what SCRAM's server says, by step."""

    def __init__(self, **lies):
        super().__init__("SCRAM-SHA-256", passwords={"alice": PASSWORD})
        self.lies = lies

    def step(self, said):
        answer = super().step(said)
        lie = self.lies.get("first" if len(self.said) == 1 else "final")
        if lie is not None:
            answer.auth_bytes = lie(bytes(answer.auth_bytes))
        return answer


def changed(name, change):
    """One attribute of a SCRAM message made another."""

    def lie(said):
        parts = dict(part.split("=", 1) for part in said.decode().split(","))
        parts[name] = change(parts[name])
        return ",".join(f"{key}={value}" for key, value in parts.items()).encode()

    return lie


class TestTheBrokersProof:
    """In SCRAM the broker proves itself too, before and after we did."""

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (lambda nonce: "x" + nonce[1:], "another nonce"),
            (lambda nonce: nonce[:47] + "x" + nonce[48:], "another nonce"),
            (lambda nonce: nonce[:48], "another nonce"),
            (lambda nonce: nonce[10:], "another nonce"),
            (lambda nonce: nonce[60:] + nonce, "another nonce"),
        ],
    )
    def test_our_whole_nonce_comes_back_and_more(self, change, why):
        """CVE-2024-56128 on our side: a nonce that only ends or begins like ours."""
        sasl = LyingSasl(first=changed("r", change))
        refused(BrokerNotProven, options("SCRAM-SHA-256"), sasl, why)
        assert len(sasl.said) == 1

    @pytest.mark.parametrize(
        "count", ["1", "4095", "1000001", "999999999999", "-5000", "x", "٤٠٩٦"]
    )
    def test_iterations_are_bounded_before_they_are_computed(self, count):
        """CVE-2026-10143; and few would let a listener guess the password."""
        sasl = LyingSasl(first=changed("i", lambda _: count))
        before = time.process_time()
        why = r"iterations; 4096 to 1000000 are taken"
        refused(BrokerNotProven, options("SCRAM-SHA-256"), sasl, why)
        assert len(sasl.said) == 1
        assert time.process_time() - before < 1

    def test_its_signature_is_verified(self):
        sasl = LyingSasl(final=changed("v", lambda proof: "A" + proof[1:]))
        sasl.lies["final"] = lambda _: b"v=" + b"A" * 43 + b"="
        refused(BrokerNotProven, options("SCRAM-SHA-256"), sasl, "signature doesn't match")

    @pytest.mark.parametrize("said", [b"", b"\xff\xfe", b"v=", b"e=other-error", b"nothing"])
    def test_success_without_a_signature_is_none(self, said):
        sasl = LyingSasl(final=lambda _: said)
        refused(BrokerNotProven, options("SCRAM-SHA-256"), sasl, "did not prove")
        sasl = LyingSasl(first=lambda _: said)
        refused(BrokerNotProven, options("SCRAM-SHA-256"), sasl, "did not prove")


class TestWhoAsks:
    def test_a_mechanism_that_the_broker_does_not_have(self):
        sasl = Sasl("PLAIN", "SCRAM-SHA-512")
        why = "not authenticate by SCRAM-SHA-256, but by PLAIN or SCRAM-SHA-512; change sasl"
        refused(UnknownMechanism, options("SCRAM-SHA-256"), sasl, why)
        assert sasl.said == []

    def test_a_broker_that_asks_nobody(self):
        def script(asked):
            if asked.api.name != "SaslHandshake":
                return None
            return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE, mechanisms=[])

        refused(WrongSecurityProtocol, options("PLAIN"), script, "does not authenticate by SASL")

    def test_a_broker_that_does_not_know_of_sasl(self):
        def script(asked):
            known = [api for api in APIS.values() if not api.name.startswith("Sasl")]
            return api_versions(known) if asked.api.name == "ApiVersions" else None

        refused(WrongSecurityProtocol, options("PLAIN"), script, "does not authenticate by SASL")

    def test_a_broker_that_asks_a_client_that_says_nothing(self):
        """It only closes the connection; we ask it what it wants instead of trying for ever."""
        given = ClientOptions(retries=RetryPolicy(timeout_ms=600_000))
        why = r"by PLAIN or OAUTHBEARER; set security_protocol=SASL_PLAINTEXT and sasl_mechanism"
        refused(AuthenticationRequired, given, Sasl("PLAIN", "OAUTHBEARER"), why)

    def test_a_broker_that_only_fell_over_is_tried_again(self):
        falls = [True]

        def script(asked):
            if asked.api.name == "SaslHandshake":
                return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE, mechanisms=[])
            return CLOSE if asked.api.name == "Metadata" and falls and falls.pop() else None

        assert topics(ClientOptions(), script)[0] == ["t"]

    def test_a_broker_that_has_answered_before_is_not_asked(self):
        ends = [False, False, True]

        def script(asked):
            return CLOSE if asked.api.name == "Metadata" and ends.pop(0) else None

        async def main():
            async with ScriptedBroker(script) as broker, Cluster([broker.address]) as cluster:
                ends.append(False)
                for _ in range(3):
                    await cluster.topics(["t"], fresh=True)
                return broker.connections, set(broker.names())

        assert asyncio.run(main()) == (2, {"Metadata"})

    def test_an_authentication_that_does_not_end(self):
        def script(asked):
            if asked.api.name != "SaslAuthenticate":
                return Sasl("OAUTHBEARER")(asked)
            return SaslAuthenticateResponse(error_code=0, auth_bytes=b"more")

        given = options("OAUTHBEARER", sasl_oauth_token_provider=lambda: "t")
        refused(AuthenticationFailed, given, script, "does not end")

    @pytest.mark.parametrize("answer", [SILENCE, CLOSE])
    def test_an_authentication_that_is_not_answered(self, answer):
        def script(asked):
            return answer if asked.api.name == "SaslAuthenticate" else Sasl("PLAIN")(asked)

        given = options("PLAIN")
        given = ClientOptions(security=given.security, connect_timeout_ms=200)
        why = "not authenticated within 200 ms" if answer is SILENCE else "the broker closed it"
        with pytest.raises(Exception, match=why):
            topics(given, script)


class TestTokens:
    def provided(self, provider, *good, sasl=None):
        sasl = sasl or Sasl("OAUTHBEARER")
        sasl.tokens |= set(good)
        given = options("OAUTHBEARER", sasl_oauth_token_provider=provider)
        return topics(given, sasl)[0], sasl

    def test_by_a_function(self):
        names, sasl = self.provided(lambda: "good", "good")
        assert names == ["t"]
        assert sasl.said == [b"n,,\x01auth=Bearer good\x01\x01"]

    def test_by_an_asynchronous_function(self):
        async def provider():
            await asyncio.sleep(0)
            return "good"

        assert self.provided(provider, "good")[0] == ["t"]
        assert self.provided(lambda: provider(), "good")[0] == ["t"]

    def test_by_a_function_that_blocks_the_others_go_on(self):
        """It runs beside the loop; ticks are counted while it waits for ten of them."""
        ticks = []

        def provider():
            while len(ticks) < 10:
                time.sleep(0.001)
            return "good"

        async def tick():
            while True:
                ticks.append(1)
                await asyncio.sleep(0.001)

        async def main():
            sasl = Sasl("OAUTHBEARER")
            sasl.tokens.add("good")
            given = options("OAUTHBEARER", sasl_oauth_token_provider=provider)
            ticking = asyncio.create_task(tick())
            async with ScriptedBroker(sasl) as broker, Cluster([broker.address], given) as cluster:
                await cluster.topics(["t"])
            ticking.cancel()

        asyncio.run(asyncio.wait_for(main(), 20))

    def test_by_a_function_that_hangs_the_program_still_ends(self):
        script = (
            "import asyncio, time\n"
            "from partage.client.security.aside import aside\n"
            "async def main():\n"
            "    await asyncio.wait_for(aside(lambda: time.sleep(3600)), 0.01)\n"
            "try: asyncio.run(main())\n"
            "except TimeoutError: print('ended')\n"
        )
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout == "ended\n", done.stderr

    def test_by_an_object_as_kafka_python_and_aiokafka_have_it(self):
        class Provider:
            def token(self):
                return "good"

            def extensions(self):
                return {"logicalCluster": "lkc-1"}

        _, sasl = self.provided(Provider(), "good")
        assert sasl.said == [b"n,,\x01auth=Bearer good\x01logicalCluster=lkc-1\x01\x01"]

    def test_with_extensions(self):
        _, sasl = self.provided(lambda: Token("good", {"traceId": "7"}), "good")
        assert sasl.said == [b"n,,\x01auth=Bearer good\x01traceId=7\x01\x01"]

    def test_that_a_broker_refuses(self):
        provider = {"sasl_oauth_token_provider": lambda: "bad.token"}
        sasl = Sasl("OAUTHBEARER")
        given = options("OAUTHBEARER", **provider)
        said = refused(TokenRefused, given, sasl, "invalid_token; check the token's issuer")
        assert "bad.token" not in said
        assert sasl.said[1:] == [b"\x01"]

    def test_that_has_expired(self):
        token = unsigned_jwt(sub="alice", exp=time.time() - 100)
        given = options("OAUTHBEARER", sasl_oauth_token_provider=lambda: token)
        refused(TokenRefused, given, Sasl("OAUTHBEARER"), r"the token expired 10\d s ago; let")

    def test_that_cannot_be_had(self):
        def provider():
            raise ValueError("secret of the provider")

        given = options("OAUTHBEARER", sasl_oauth_token_provider=provider)
        said = refused(TokenUnavailable, given, Sasl("OAUTHBEARER"), "provider raised ValueError")
        assert "secret" not in said

    @pytest.mark.parametrize(
        ("token", "why"),
        [
            (None, "returned NoneType, not text"),
            (b"good", "returned bytes, not text"),
            ("", "characters that no token has"),
            ("good\x01auth=Bearer other", "characters that no token has"),
            (Token("good", {"auth": "x"}), "'auth' cannot be sent"),
            (Token("good", {"a": "x\x01auth=Bearer y"}), "'a' cannot be sent"),
            (Token("good", {"a b": "x"}), "'a b' cannot be sent"),
        ],
    )
    def test_that_is_none(self, token, why):
        given = options("OAUTHBEARER", sasl_oauth_token_provider=lambda: token)
        sasl = Sasl("OAUTHBEARER")
        refused(TokenUnavailable, given, sasl, why)
        assert sasl.said == []


class TurnedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    ahead_s = 0.0

    def time(self):
        return super().time() + self.ahead_s


class TestSessionsThatEnd:
    """KIP-368: authenticated again on the same connection, before the broker's time is over."""

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
        sasl = Sasl(mechanism, passwords={"alice": PASSWORD})
        sasl.lifetime_ms = lifetime_ms
        return sasl

    @pytest.mark.parametrize("mechanism", BY_PASSWORD)
    def test_are_renewed_when_most_of_their_time_has_passed(self, mechanism):
        sasl = self.sasl(mechanism)

        async def main(connection, broker, loop):
            await connection.send(METADATA, ALL)
            loop.ahead_s += 84
            await connection.send(METADATA, ALL)
            assert sasl.succeeded == 1
            loop.ahead_s += 12
            await connection.send(METADATA, ALL)
            assert sasl.succeeded == 2
            loop.ahead_s += 84  # the new session's time counts from its own beginning
            await connection.send(METADATA, ALL)
            assert sasl.succeeded == 2
            assert broker.connections == 1

        self.run(main, sasl, options(mechanism))

    def test_without_an_end_are_not(self):
        sasl = self.sasl(lifetime_ms=0)

        async def main(connection, broker, loop):
            loop.ahead_s += 10**7
            await connection.send(METADATA, ALL)

        self.run(main, sasl)
        assert sasl.succeeded == 1

    def test_nothing_else_is_sent_until_what_was_asked_is_answered_and_they_are_renewed(self):
        """A broker that renews a session takes nothing but SASL on its connection."""
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
            loop.ahead_s += 16  # less than the request's time ...
            connection._renew_at = loop.time()  # ... and the session's is near its end
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

    def test_that_cannot_be_renewed_end_the_connection_and_tell_all_who_wait(self, caplog):
        sasl = self.sasl()

        async def main(connection, broker, loop):
            sasl.passwords.clear()
            loop.ahead_s += 96
            sent = [connection.send(METADATA, ALL) for _ in range(3)]
            failures = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(failure) for failure in failures] == [AuthenticationFailed] * 3
            assert not connection.is_open
            with pytest.raises(ConnectionLost):
                await connection.send(METADATA, ALL)

        self.run(main, sasl)
        gc.collect()
        assert "never retrieved" not in caplog.text

    def test_are_renewed_for_the_others_when_the_first_gives_up(self, caplog):
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

    def test_that_nobody_waits_for_any_more_fail_quietly(self, caplog):
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

    def test_with_a_token_get_a_new_one(self):
        tokens = iter(["one", "two"])
        sasl = self.sasl("OAUTHBEARER")
        sasl.tokens |= {"one", "two"}

        async def main(connection, broker, loop):
            loop.ahead_s += 96
            await connection.send(METADATA, ALL)

        given = options("OAUTHBEARER", sasl_oauth_token_provider=lambda: next(tokens))
        self.run(main, sasl, given)
        assert [said.split(b"Bearer ")[1][:3] for said in sasl.said] == [b"one", b"two"]


def test_the_root_of_all_is_a_client_error():
    assert issubclass(SecurityError, Exception)
    assert not SecurityError.is_retriable
