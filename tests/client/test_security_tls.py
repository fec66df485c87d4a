"""TLS: trust, client certificates, and errors if the two sides do not match."""

import asyncio
import os
import socket
import ssl

import pytest
import uvloop

from partage.client import BrokersUnreachableError, ClientOptions, Cluster, ConnectError
from partage.client.connection import Connection
from partage.client.security.errors import (
    CertificateHostMismatchError,
    ClientCertificateRejectedError,
    TlsNegotiationError,
    UntrustedCertificateError,
    WrongSecurityProtocolError,
)
from partage.client.security.options import InvalidSecurityOptionError, SecurityOptions
from partage.wire.apis.metadata import METADATA, MetadataRequest

from .certificate_authority import AlertingPort, Authority
from .scripted_broker import ScriptedBroker, ScriptedPort

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request):
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority):
    return authority.issue("server", "127.0.0.1", "localhost")


def options(authority, **more):
    trusted = {"security_protocol": "SSL", "ssl_cafile": str(authority.certificate)}
    security = SecurityOptions(**{**trusted, **more})
    return ClientOptions(security=security, connect_timeout_ms=20_000, request_timeout_ms=20_000)


async def metadata(options, **broker):
    """Return the topics that a broker lists over such a connection, and the TLS version."""
    async with ScriptedBroker(**broker) as serving:
        connection = await Connection.open(serving.address, options)
        try:
            answer = await connection.send(METADATA, MetadataRequest(topics=None))
            spoken = connection._transport.get_extra_info("ssl_object").version()
            return [topic.name for topic in answer.topics], spoken
        finally:
            connection.close()


def test_requests_over_tls(run, authority, server):
    assert run(metadata(options(authority), tls=server.server())) == (["t"], "TLSv1.3")


def test_tls_1_2_is_the_minimum(run, authority, server):
    old = server.server()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert run(metadata(options(authority), tls=old))[1] == "TLSv1.2"
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        AlertingPort(old) as port,
        pytest.raises(
            TlsNegotiationError,
            match=r"TLS negotiation failed .*; this client supports TLS 1\.2 and 1\.3",
        ),
    ):
        run(Connection.open(port.address, options(authority)))


def test_large_responses_over_tls(run, authority, server):
    async def main():
        async with ScriptedBroker(tls=server.server()) as broker:
            broker.topics = {f"topic-{n:05}": 1 for n in range(20_000)}
            async with Cluster([broker.address], options(authority)) as cluster:
                return len(await cluster.all_topics())

    assert run(main()) == 20_000


def test_authority_as_pem_text(run, authority, server):
    text = authority.certificate.read_text()
    assert run(metadata(options(authority, ssl_cafile=None, ssl_cadata=text), tls=server.server()))


def test_custom_ssl_context(run, authority, server):
    own = ssl.create_default_context(cafile=authority.certificate)
    given = ClientOptions(security=SecurityOptions(security_protocol="SSL", ssl_context=own))
    assert run(metadata(given, tls=server.server()))


class TestTheBrokersCertificate:
    def test_unknown_authority_is_rejected(self, run, authority, tmp_path):
        stranger = Authority(tmp_path, "stranger").issue("server", "127.0.0.1")
        with pytest.raises(
            UntrustedCertificateError, match=r"not trusted: unable to get local issuer.*ssl_cafile"
        ):
            run(metadata(options(authority), tls=stranger.server()))

    def test_system_authorities_are_the_default(self, run, authority, server):
        with pytest.raises(UntrustedCertificateError, match="not trusted"):
            run(metadata(options(authority, ssl_cafile=None), tls=server.server()))

    def test_expired_certificate_is_rejected(self, run, authority):
        old = authority.issue("old", "127.0.0.1", days=-1)
        with pytest.raises(UntrustedCertificateError, match="certificate has expired") as raised:
            run(metadata(options(authority), tls=old.server()))
        assert "ssl_cafile" not in str(raised.value)
        assert "Renew the certificate" in str(raised.value)

    @pytest.mark.parametrize("host", ["elsewhere.example", "10.0.0.1"])
    def test_certificate_of_other_host_is_rejected(self, run, authority, host):
        other = authority.issue("other", host)
        with pytest.raises(
            CertificateHostMismatchError, match=r"127\.0\.0\.1.*ssl_check_hostname=False"
        ):
            run(metadata(options(authority), tls=other.server()))

    def test_error_for_other_host_has_one_full_stop(self, run, authority):
        other = authority.issue("other", "10.0.0.1")
        with pytest.raises(CertificateHostMismatchError, match=r"[^.]\. Connect to a name"):
            run(metadata(options(authority), tls=other.server()))

    def test_disabled_host_check_still_checks_authority(self, run, authority, tmp_path):
        lenient = options(authority, ssl_check_hostname=False)
        assert run(metadata(lenient, tls=authority.issue("other", "a.example").server()))
        stranger = Authority(tmp_path, "stranger").issue("server", "127.0.0.1")
        with pytest.raises(UntrustedCertificateError):
            run(metadata(lenient, tls=stranger.server()))


class TestOurCertificate:
    @pytest.mark.parametrize("password", [None, "open sesame"])
    def test_client_certificate_is_presented(self, run, authority, server, password):
        own = authority.issue("client", password=password)
        shown = options(
            authority,
            ssl_certfile=str(own.certificate),
            ssl_keyfile=str(own.key),
            ssl_password=password,
        )
        assert run(metadata(shown, tls=server.server(clients_of=authority)))

    def test_certificate_and_key_in_one_file(self, run, authority, server):
        own = authority.issue("client").in_one_file()
        shown = options(authority, ssl_certfile=str(own.certificate))
        assert run(metadata(shown, tls=server.server(clients_of=authority)))

    @pytest.mark.parametrize("password", [None, "open sesame"])
    def test_certificate_and_key_as_text(self, run, authority, server, password):
        own = authority.issue("client", password=password)
        text = own.certificate.read_text() + own.key.read_text()
        shown = options(authority, ssl_certdata=text, ssl_password=password)
        assert run(metadata(shown, tls=server.server(clients_of=authority)))

    def test_renewed_certificate_is_used_for_next_connection(
        self, run, authority, server, tmp_path
    ):
        own = Authority(tmp_path, "stranger").issue("client")
        shown = options(authority, ssl_certfile=str(own.certificate), ssl_keyfile=str(own.key))

        async def main():
            async with (
                ScriptedBroker(tls=server.server(clients_of=authority)) as broker,
                Cluster([broker.address], shown) as cluster,
            ):
                with pytest.raises(BrokersUnreachableError):
                    await cluster.topics(["t"])
                renewed = authority.issue("client")
                own.certificate.write_bytes(renewed.certificate.read_bytes())
                own.key.write_bytes(renewed.key.read_bytes())
                return list(await cluster.topics(["t"]))

        assert run(main()) == ["t"]

    def test_missing_client_certificate_raises(self, run, authority, server):
        asking = server.server(clients_of=authority)
        with (
            AlertingPort(asking) as port,
            pytest.raises(ClientCertificateRejectedError, match="set ssl_certfile and ssl_keyfile"),
        ):
            run(Connection.open(port.address, options(authority)))
        # In TLS 1.2 the alert does not say that the certificate is missing.
        asking.maximum_version = ssl.TLSVersion.TLSv1_2
        with (
            AlertingPort(asking) as port,
            pytest.raises(
                TlsNegotiationError, match="if it asks for a certificate, set ssl_certfile"
            ),
        ):
            run(Connection.open(port.address, options(authority)))

    def test_untrusted_client_certificate_raises(self, run, authority, server, tmp_path):
        own = Authority(tmp_path, "stranger").issue("client").in_one_file()
        given = options(authority, ssl_certfile=str(own.certificate))
        with (
            AlertingPort(server.server(clients_of=authority)) as port,
            pytest.raises(
                ClientCertificateRejectedError, match="authority that signed ssl_certfile"
            ),
        ):
            run(Connection.open(port.address, given))


class TestPortsThatDoNotFit:
    def test_tls_to_plaintext_port(self, run, authority):
        """A broker reads a TLS handshake as a frame that is too large, and closes."""

        async def main():
            async with (
                ScriptedBroker() as broker,
                Cluster([broker.address], options(authority)) as cluster,
            ):
                await cluster.topics(["t"])

        with pytest.raises(WrongSecurityProtocolError, match=r"does not speak TLS; .* PLAINTEXT"):
            run(main())

    @pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
    def test_closing_port_is_probed_once(self, run, authority, protocol):
        """A broker that restarts also closes connections; it is not probed each time."""
        made = []

        async def main():
            async def close(reader, writer):
                made.append(1)

            tls = options(authority).security
            given = ClientOptions(security=tls if protocol == "SSL" else SecurityOptions())
            async with ScriptedPort(close) as port, Cluster([port.address], given) as cluster:
                for _ in range(3):
                    with pytest.raises(BrokersUnreachableError):
                        await cluster.topics(["t"])

        run(main())
        # Three by the client, one by the probe.
        assert len(made) == 4

    def test_tls_to_non_broker_port(self, run, authority):
        async def main():
            async def greet(reader, writer):
                writer.write(b"220 mail.example ESMTP\r\n")
                await reader.read(1000)

            async with (
                ScriptedPort(greet) as port,
                Cluster([port.address], options(authority)) as cluster,
            ):
                await cluster.topics(["t"])

        with pytest.raises(WrongSecurityProtocolError, match="does not speak TLS"):
            run(main())

    def test_plaintext_to_tls_port(self, run):
        async def main():
            async def alert(reader, writer):
                writer.write(b"\x15\x03\x03\x00\x02\x02P")  # internal_error, as Java sends it
                await reader.read(1000)

            async with ScriptedPort(alert) as port, Cluster([port.address]) as cluster:
                await cluster.topics(["t"])

        with pytest.raises(
            WrongSecurityProtocolError, match="set security_protocol to SSL or SASL_SSL"
        ):
            run(main())

    def test_plaintext_to_tls_port_that_only_closes(self, run, server):
        async def main():
            async with (
                ScriptedBroker(tls=server.server()) as broker,
                Cluster([broker.address]) as cluster,
            ):
                await cluster.topics(["t"])

        with pytest.raises(
            WrongSecurityProtocolError, match="speaks TLS; set security_protocol to SSL"
        ):
            run(main())

    def test_silent_port_does_not_block(self, run, authority):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            given = options(authority)
            given = ClientOptions(security=given.security, connect_timeout_ms=100)
            where = f"127.0.0.1:{silent.getsockname()[1]}"

            async def main():
                async with Cluster(where, given) as cluster:
                    await cluster.topics(["t"])

            with pytest.raises(Exception, match=r"within 100 ms; does this port speak TLS\?"):
                run(main())


class TestFiles:
    def refused(self, authority, **more):
        with pytest.raises(InvalidSecurityOptionError) as raised:
            Cluster("127.0.0.1:9092", options(authority, **more))
        return str(raised.value)

    def test_missing_files_raise(self, authority):
        said = self.refused(authority, ssl_cafile="nowhere.pem")
        assert said == "ssl_cafile=nowhere.pem: No such file or directory"
        said = self.refused(authority, ssl_certfile="nowhere.crt")
        assert said == "ssl_certfile=nowhere.crt: No such file or directory"

    def test_invalid_files_raise(self, authority, tmp_path):
        junk = tmp_path / "junk.pem"
        junk.write_text("no certificate")
        for name in ("ssl_cafile", "ssl_certfile"):
            assert "readable PEM" in self.refused(authority, **{name: str(junk)})
        assert "ssl_cadata: " in self.refused(authority, ssl_cafile=None, ssl_cadata="junk")
        assert self.refused(authority, ssl_certdata="junk").startswith("ssl_certdata: ")

    @pytest.mark.parametrize(
        ("start", "says"),
        [
            (b"\xfe\xed\xfe\xed", "Convert it: keytool -importkeystore -srckeystore {} -dest"),
            (b"\x30\x82\x01\x02", "PKCS#12 store with: openssl pkcs12 -in {} -out client.pem"),
        ],
    )
    def test_key_store_is_refused_with_the_conversion(self, authority, tmp_path, start, says):
        store = tmp_path / "client.store"
        store.write_bytes(start + bytes(100))
        assert says.format(store) in self.refused(authority, ssl_certfile=str(store))

    def test_key_of_other_certificate_raises(self, authority):
        one, other = authority.issue("one"), authority.issue("two")
        said = self.refused(
            authority, ssl_certfile=str(one.certificate), ssl_keyfile=str(other.key)
        )
        assert said.endswith("the key does not match the certificate")

    @pytest.mark.parametrize("password", ["wrong", None])
    def test_wrong_key_password_raises_without_prompt(self, authority, password, monkeypatch):
        """OpenSSL would otherwise prompt at the terminal and block."""
        own = authority.issue("locked", password="right")
        given = {"ssl_certfile": str(own.certificate), "ssl_keyfile": str(own.key)}
        said = self.refused(authority, **given, ssl_password=password)
        assert "check ssl_password" in said
        assert "wrong" not in said

    def test_vanished_file_raises_at_next_connection(self, run, authority, server):
        own = authority.issue("leaving").in_one_file()
        given = options(authority, ssl_certfile=str(own.certificate))

        async def main():
            async with ScriptedBroker(tls=server.server()) as broker:
                cluster = Cluster([broker.address], given)
                os.unlink(own.certificate)
                async with cluster:
                    await cluster.topics(["t"])

        with pytest.raises(Exception, match=r"leaving\.both: No such file") as raised:
            run(main())
        assert isinstance(raised.value.attempts[0], ConnectError)
