"""TLS and every SASL mechanism with Apache Kafka: connect, read, and be rejected."""

import asyncio
import time

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from interop.peers.kafka import ApacheKafka
from partage.client import (
    EARLIEST,
    LATEST,
    AuthenticationFailedError,
    AuthenticationRequiredError,
    CertificateHostMismatchError,
    ClientCertificateRejectedError,
    ClientOptions,
    Cluster,
    RetryPolicy,
    TokenRejectedError,
    TopicPartition,
    UnsupportedMechanismError,
    UntrustedCertificateError,
    WrongSecurityProtocolError,
    decode_fetched,
    fetch_range,
    list_offsets,
    parse_security_options,
)

from .certificate_authority import Authority
from .confluent_admin import create_topic, produce
from .sasl_broker import unsigned_jwt

pytestmark = pytest.mark.interop

T = TopicPartition("t", 0)
VALUES = [b"value %d" % n for n in range(1000)]
#: Sent unchanged: Kafka applies no SASLprep (RFC 4013).
USERS = {"alice": "pa=ss,word", "bob=,": "½ ﬁne ☕ pässword"}
MODULES = "org.apache.kafka.common.security"
#: The client renews a session in its last 5 to 15 %, which is enough on a busy machine.
SESSION_MS = 15_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def kafka(authority):
    server = authority.issue("kafka", "127.0.0.1").in_one_file()
    elsewhere = authority.issue("elsewhere", "kafka.example").in_one_file()
    plain_users = " ".join(f'user_{user}="{USERS[user]}"' for user in ("alice",))
    listeners = {
        "TLS": "SSL",
        "MTLS": "SSL",
        "ELSEWHERE": "SSL",
        "SASL": "SASL_PLAINTEXT",
        "SECURE": "SASL_SSL",
        "SHORT": "SASL_PLAINTEXT",
    }
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.certificate),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.elsewhere.ssl.keystore.type": "PEM",
        "listener.name.elsewhere.ssl.keystore.location": str(elsewhere.certificate),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
        # Longer than any token's lifetime, so that only the token's expiry matters.
        "listener.name.short.oauthbearer.connections.max.reauth.ms": "100000000",
    }
    for listener in ("sasl", "secure", "short"):
        for name, module in {
            "plain": f"plain.PlainLoginModule required {plain_users}",
            "scram-sha-256": "scram.ScramLoginModule required",
            "scram-sha-512": "scram.ScramLoginModule required",
            "oauthbearer": "oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker"',
        }.items():
            key = f"listener.name.{listener}.{name}.sasl.jaas.config"
            settings[key] = f"{MODULES}.{module};"
    with ApacheKafka(overrides=settings, listeners=listeners) as kafka:
        create_topic(kafka.bootstrap, "t")
        produce(kafka.bootstrap, "t", [{"value": value} for value in VALUES])
        add_scram_users(kafka)
        yield kafka


def add_scram_users(kafka):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 8192)
        changes = [
            UserScramCredentialUpsertion(user, info, password.encode())
            for user, password in USERS.items()
        ]
        for future in admin.alter_user_scram_credentials(changes).values():
            future.result(30)


def options(**security):
    """Return options with ten minutes of retries, so that retried errors are noticed."""
    return ClientOptions(
        security=parse_security_options(security), retries=RetryPolicy(timeout_ms=600_000)
    )


def sasl(mechanism, user="alice", password=None, **more):
    return options(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username=user,
        sasl_password=USERS[user] if password is None else password,
        **more,
    )


def bearer(token, **more):
    given = {"security_protocol": "SASL_PLAINTEXT", **more}
    return options(sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=token, **given)


def token(seconds=600):
    now = time.time()
    return unsigned_jwt(sub="alice", iat=now, exp=now + seconds)


async def values(cluster):
    """Read the whole topic."""
    assert list(await cluster.topics(["t"], fresh=True)) == ["t"]
    first = (await list_offsets(cluster, {T: EARLIEST}))[T].offset
    end = (await list_offsets(cluster, {T: LATEST}))[T].offset
    found = []
    async for answer in fetch_range(cluster, T, first, end):
        for columns in decode_fetched(answer):
            edges = memoryview(columns.value.offsets).cast("i")
            held = bytes(columns.value.data)
            found += [held[edges[n] : edges[n + 1]] for n in range(columns.count)]
    return found


def read(servers, options):
    async def main():
        async with Cluster(servers, options) as cluster:
            return await values(cluster)

    return asyncio.run(asyncio.wait_for(main(), 60))


class TestTls:
    def test_tls_with_trusted_broker(self, kafka, authority):
        given = options(security_protocol="SSL", ssl_cafile=str(authority.certificate))
        assert read(kafka.listener("TLS"), given) == VALUES

    def test_tls_with_client_certificate(self, kafka, authority):
        own = authority.issue("client", password="open sesame")
        given = options(
            security_protocol="SSL",
            ssl_cafile=str(authority.certificate),
            ssl_certfile=str(own.certificate),
            ssl_keyfile=str(own.key),
            ssl_password="open sesame",
        )
        assert read(kafka.listener("MTLS"), given) == VALUES

    def test_tls_without_required_client_certificate(self, kafka, authority):
        given = options(security_protocol="SSL", ssl_cafile=str(authority.certificate))
        with pytest.raises(
            ClientCertificateRejectedError, match="set ssl_certfile and ssl_keyfile"
        ):
            read(kafka.listener("MTLS"), given)

    def test_tls_with_untrusted_client_certificate(self, kafka, authority, tmp_path):
        own = Authority(tmp_path, "stranger").issue("client").in_one_file()
        given = options(
            security_protocol="SSL",
            ssl_cafile=str(authority.certificate),
            ssl_certfile=str(own.certificate),
        )
        with pytest.raises(
            ClientCertificateRejectedError, match="authority that signed ssl_certfile"
        ):
            read(kafka.listener("MTLS"), given)

    def test_tls_with_untrusted_broker(self, kafka, tmp_path):
        stranger = Authority(tmp_path, "stranger")
        given = options(security_protocol="SSL", ssl_cafile=str(stranger.certificate))
        with pytest.raises(UntrustedCertificateError):
            read(kafka.listener("TLS"), given)

    def test_tls_with_wrong_host_name(self, kafka, authority):
        trusted = {"security_protocol": "SSL", "ssl_cafile": str(authority.certificate)}
        with pytest.raises(CertificateHostMismatchError):
            read(kafka.listener("ELSEWHERE"), options(**trusted))
        unchecked = options(**trusted, ssl_check_hostname=False)
        assert read(kafka.listener("ELSEWHERE"), unchecked) == VALUES


class TestSasl:
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_sasl_with_correct_password(self, kafka, mechanism):
        assert read(kafka.listener("SASL"), sasl(mechanism)) == VALUES

    @pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_sasl_with_non_ascii_names_and_passwords(self, kafka, mechanism):
        assert read(kafka.listener("SASL"), sasl(mechanism, "bob=,")) == VALUES

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_sasl_with_wrong_password(self, kafka, mechanism):
        with pytest.raises(AuthenticationFailedError, match="check sasl_username") as raised:
            read(kafka.listener("SASL"), sasl(mechanism, password="open sesame"))
        assert "open sesame" not in str(raised.value)

    def test_sasl_with_token(self, kafka):
        assert read(kafka.listener("SASL"), bearer(token)) == VALUES

    def test_sasl_with_expired_token(self, kafka):
        with pytest.raises(TokenRejectedError, match="the token expired"):
            read(kafka.listener("SASL"), bearer(lambda: token(-600)))

    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
    def test_sasl_over_tls(self, kafka, authority, mechanism):
        trusted = {"ssl_cafile": str(authority.certificate)}
        given = options(
            security_protocol="SASL_SSL",
            sasl_mechanism=mechanism,
            sasl_username="alice",
            sasl_password=USERS["alice"],
            **trusted,
        )
        assert read(kafka.listener("SECURE"), given) == VALUES
        given = bearer(token, security_protocol="SASL_SSL", **trusted)
        assert read(kafka.listener("SECURE"), given) == VALUES

    def test_sasl_with_unsupported_mechanism(self, kafka):
        with pytest.raises(UnsupportedMechanismError, match=r"only .*SCRAM-SHA-256.*; change"):
            read(kafka.listener("SHORT"), sasl("PLAIN"))

    @pytest.mark.parametrize(
        "given",
        [
            lambda: sasl("SCRAM-SHA-256"),
            lambda: bearer(lambda: token(SESSION_MS / 1000)),
        ],
        ids=["until the broker ends it", "until the token does"],
    )
    def test_sasl_session_is_renewed_during_read(self, kafka, given):
        """One connection reads for longer than a session lasts, and is never reopened."""

        async def main():
            async with Cluster(kafka.listener("SHORT"), given()) as cluster:
                connection = await cluster.any_broker()
                first_end = connection._renew_at
                until = time.monotonic() + 1.1 * SESSION_MS / 1000
                while time.monotonic() < until:
                    assert await values(cluster) == VALUES
                    await asyncio.sleep(0.05)
                assert await cluster.any_broker() is connection
                assert first_end < connection._renew_at < float("inf")

        asyncio.run(asyncio.wait_for(main(), 120))


class TestPortsThatDoNotFit:
    def test_tls_to_plaintext_port(self, kafka, authority):
        given = options(security_protocol="SSL", ssl_cafile=str(authority.certificate))
        with pytest.raises(WrongSecurityProtocolError, match="does not speak TLS"):
            read(kafka.bootstrap, given)

    def test_plaintext_to_tls_port(self, kafka):
        with pytest.raises(WrongSecurityProtocolError, match="this port speaks TLS"):
            read(kafka.listener("TLS"), options())

    def test_sasl_to_port_without_sasl(self, kafka):
        with pytest.raises(WrongSecurityProtocolError, match="does not authenticate by SASL"):
            read(kafka.bootstrap, sasl("PLAIN"))

    def test_no_sasl_to_sasl_port(self, kafka, authority):
        with pytest.raises(
            AuthenticationRequiredError, match="set security_protocol=SASL_PLAINTEXT"
        ):
            read(kafka.listener("SASL"), options())
        trusted = options(security_protocol="SSL", ssl_cafile=str(authority.certificate))
        with pytest.raises(AuthenticationRequiredError, match="set security_protocol=SASL_SSL"):
            read(kafka.listener("SECURE"), trusted)
