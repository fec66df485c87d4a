"""SASL: each mechanism, and rejections."""

import asyncio
import logging
import sys
import time

import pytest

from partage import Consumer
from partage.client import (
    Address,
    AuthenticationFailedError,
    AuthenticationRequiredError,
    BrokerProofError,
    ClientOptions,
    Cluster,
    InvalidSecurityOptionError,
    RetryPolicy,
    SecurityError,
    UnsupportedMechanismError,
    WrongSecurityProtocolError,
)
from partage.client.security.credentials import warn_secret_unencrypted
from partage.client.security.mechanisms import Scram
from partage.sync import Consumer as SyncConsumer
from partage.wire.apis import APIS
from partage.wire.apis.sasl_authenticate import SaslAuthenticateResponse
from partage.wire.apis.sasl_handshake import SaslHandshakeResponse

from .certificate_authority import Authority
from .sasl_broker import ILLEGAL_SASL_STATE, SaslScript
from .sasl_client import BY_PASSWORD, PASSWORD, options, refused, topics
from .scripted_broker import CLOSE, SILENCE, ScriptedBroker, api_versions


class TestPasswords:
    @pytest.mark.parametrize("mechanism", BY_PASSWORD)
    def test_correct_password_is_accepted(self, mechanism):
        names, broker = topics(
            options(mechanism), SaslScript(mechanism, passwords={"alice": PASSWORD})
        )
        assert names == ["t"]
        assert broker.names()[:2] == ["SaslHandshake", "SaslAuthenticate"]
        assert broker.asked[1].version == 1

    @pytest.mark.parametrize("mechanism", BY_PASSWORD)
    def test_wrong_password_raises(self, mechanism, caplog):
        sasl = SaslScript(mechanism, passwords={"alice": PASSWORD})
        with caplog.at_level(logging.DEBUG):
            said = refused(
                AuthenticationFailedError,
                options(mechanism, "open sesame"),
                sasl,
                f"by {mechanism} failed: .*Invalid username or password; check sasl_username",
            )
        assert "open sesame" not in said + caplog.text
        assert sasl.succeeded == 0

    def test_wrong_password_is_raised_in_poll(self):
        """The error is raised in poll; the member does not retry forever."""

        async def main():
            async with ScriptedBroker(
                SaslScript("PLAIN", passwords={"alice": PASSWORD})
            ) as serving:
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
                    with pytest.raises(AuthenticationFailedError, match="check sasl_username"):
                        await member.poll(30_000)

        asyncio.run(main())

    def test_sasl_over_tls(self, tmp_path):
        authority = Authority(tmp_path)
        server = authority.issue("server", "127.0.0.1").server()
        trusted = {"security_protocol": "SASL_SSL", "ssl_cafile": str(authority.certificate)}
        sasl = SaslScript("PLAIN", passwords={"alice": PASSWORD})
        assert topics(options("PLAIN", **trusted), sasl, tls=server)[0] == ["t"]

    def test_cleartext_password_is_warned_of(self, caplog):
        warn_secret_unencrypted.cache_clear()
        Cluster("127.0.0.1:9092", options("PLAIN"))
        assert "without TLS sends the secret unencrypted" in caplog.text
        caplog.clear()
        Cluster("127.0.0.1:9092", options("PLAIN"))
        assert caplog.text == "", "once is enough"
        Cluster("127.0.0.1:9092", options("SCRAM-SHA-256"))
        assert caplog.text == ""

    def test_plain_sends_no_authorization_identity(self):
        """CVE-2017-12610: the broker derives the authorization identity from the user."""
        sasl = SaslScript("PLAIN", passwords={"alice": PASSWORD})
        topics(options("PLAIN"), sasl)
        assert sasl.said == [f"\0alice\0{PASSWORD}".encode()]

    def test_scram_without_its_package_is_refused(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "scramp", None)
        why = r"^SCRAM needs the package scramp: pip install 'partage\[sasl\]'$"
        with pytest.raises(InvalidSecurityOptionError, match=why):
            Cluster("127.0.0.1:9092", options("SCRAM-SHA-256"))
        Cluster("127.0.0.1:9092", options("PLAIN"))

    def test_consumer_without_scram_package_is_refused(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "scramp", None)
        login = {"sasl_username": "alice", "sasl_password": PASSWORD}
        with pytest.raises(InvalidSecurityOptionError, match="SCRAM needs the package scramp"):
            SyncConsumer(
                "127.0.0.1:9092",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-512",
                **login,
            )

    def test_names_and_passwords_are_sent_unchanged(self):
        """SASLprep would change the one and reject the other; Kafka does not apply it."""
        scram = Scram(Address("kafka", 9092), "SCRAM-SHA-256", "½,", "☕")
        assert asyncio.run(scram.initial_response()).startswith("n,,n=½=2C,r=".encode())

    def test_error_hides_password_sent_by_broker(self):
        def script(asked):
            if asked.api.name != "SaslAuthenticate":
                return SaslScript("PLAIN")(asked)
            why = f"no user alice with {PASSWORD}\n"
            return SaslAuthenticateResponse(error_code=58, error_message=why, auth_bytes=b"")

        said = refused(AuthenticationFailedError, options("PLAIN"), script, "no user alice with ")
        assert PASSWORD not in said
        assert "\n" not in said


class LyingSasl(SaslScript):
    """A SASL script that changes SCRAM's server messages, by step."""

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
    """Return a function that replaces one attribute of a SCRAM message."""

    def lie(said):
        parts = dict(part.split("=", 1) for part in said.decode().split(","))
        parts[name] = change(parts[name])
        return ",".join(f"{key}={value}" for key, value in parts.items()).encode()

    return lie


class TestTheBrokersProof:
    """In SCRAM the broker also proves its identity, in both of its messages."""

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
    def test_server_nonce_must_extend_client_nonce(self, change, why):
        """CVE-2024-56128 on the client side: a nonce that only ends or begins like ours."""
        sasl = LyingSasl(first=changed("r", change))
        refused(BrokerProofError, options("SCRAM-SHA-256"), sasl, why)
        assert len(sasl.said) == 1

    @pytest.mark.parametrize(
        "count", ["1", "4095", "1000001", "999999999999", "-5000", "x", "٤٠٩٦"]
    )
    def test_iteration_count_is_limited(self, count):
        """CVE-2026-10143. Too few iterations would let an eavesdropper guess the password."""
        sasl = LyingSasl(first=changed("i", lambda _: count))
        before = time.process_time()
        why = r"iterations; 4096 to 1000000 are allowed"
        refused(BrokerProofError, options("SCRAM-SHA-256"), sasl, why)
        assert len(sasl.said) == 1
        assert time.process_time() - before < 1

    def test_server_signature_is_verified(self):
        sasl = LyingSasl(final=changed("v", lambda proof: "A" + proof[1:]))
        sasl.lies["final"] = lambda _: b"v=" + b"A" * 43 + b"="
        refused(BrokerProofError, options("SCRAM-SHA-256"), sasl, "signature doesn't match")

    @pytest.mark.parametrize("said", [b"", b"\xff\xfe", b"v=", b"e=other-error", b"nothing"])
    def test_success_without_signature_is_rejected(self, said):
        sasl = LyingSasl(final=lambda _: said)
        refused(BrokerProofError, options("SCRAM-SHA-256"), sasl, "did not prove")
        sasl = LyingSasl(first=lambda _: said)
        refused(BrokerProofError, options("SCRAM-SHA-256"), sasl, "did not prove")


class TestSupportByTheBroker:
    def test_unsupported_mechanism_raises(self):
        sasl = SaslScript("PLAIN", "SCRAM-SHA-512")
        why = "not support SASL mechanism SCRAM-SHA-256, only PLAIN or SCRAM-SHA-512; change sasl"
        refused(UnsupportedMechanismError, options("SCRAM-SHA-256"), sasl, why)
        assert sasl.said == []

    def test_broker_without_sasl_raises(self):
        def script(asked):
            if asked.api.name != "SaslHandshake":
                return None
            return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE, mechanisms=[])

        refused(
            WrongSecurityProtocolError, options("PLAIN"), script, "does not authenticate by SASL"
        )

    def test_broker_without_sasl_api_raises(self):
        def script(asked):
            known = [api for api in APIS.values() if not api.name.startswith("Sasl")]
            return api_versions(known) if asked.api.name == "ApiVersions" else None

        refused(
            WrongSecurityProtocolError, options("PLAIN"), script, "does not authenticate by SASL"
        )

    def test_missing_authentication_is_reported(self):
        """The broker only closes the connection. The client asks for its mechanisms instead of
        retrying.
        """
        given = ClientOptions(retries=RetryPolicy(timeout_ms=600_000))
        why = r"by PLAIN or OAUTHBEARER; set security_protocol=SASL_PLAINTEXT and sasl_mechanism"
        refused(AuthenticationRequiredError, given, SaslScript("PLAIN", "OAUTHBEARER"), why)

    def test_broker_that_only_crashed_is_retried(self):
        falls = [True]

        def script(asked):
            if asked.api.name == "SaslHandshake":
                return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE, mechanisms=[])
            return CLOSE if asked.api.name == "Metadata" and falls and falls.pop() else None

        assert topics(ClientOptions(), script)[0] == ["t"]

    def test_broker_that_answered_before_is_not_probed(self):
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

    def test_endless_exchange_raises(self):
        def script(asked):
            if asked.api.name != "SaslAuthenticate":
                return SaslScript("OAUTHBEARER")(asked)
            return SaslAuthenticateResponse(error_code=0, auth_bytes=b"more")

        given = options("OAUTHBEARER", sasl_oauth_token_provider=lambda: "t")
        refused(AuthenticationFailedError, given, script, "no result after 4 steps")

    @pytest.mark.parametrize("answer", [SILENCE, CLOSE])
    def test_unanswered_authentication_raises(self, answer):
        def script(asked):
            return answer if asked.api.name == "SaslAuthenticate" else SaslScript("PLAIN")(asked)

        given = options("PLAIN")
        given = ClientOptions(security=given.security, connect_timeout_ms=200)
        why = (
            "authentication did not complete within 200 ms"
            if answer is SILENCE
            else "the broker closed it"
        )
        with pytest.raises(Exception, match=why):
            topics(given, script)


def test_security_error_is_a_client_error():
    assert issubclass(SecurityError, Exception)
    assert not SecurityError.is_retriable
