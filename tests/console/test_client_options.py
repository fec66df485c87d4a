"""Translation of librdkafka properties; security settings must not be weakened."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from partage.client.security.options import SecurityOptions
from partage.console.common.client_options import client_options, consumer_options
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.connection import connection_properties
from partage.console.common.dispatch import command_app
from partage.console.common.errors import CommandError
from partage.console.common.options import with_coordinators

TLS = {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("text", "is_checked"),
    [("https", True), ("HTTPS", True), (" https ", True), ("none", False), ("", True)],
)
def test_host_name_check_is_off_only_for_none(text: str, is_checked: bool) -> None:
    given = consumer_options({**TLS, "ssl.endpoint.identification.algorithm": text})
    assert given["ssl_check_hostname"] is is_checked


def test_supported_properties_are_translated() -> None:
    reached = client_options(
        {
            "bootstrap.servers": "kafka:9092",
            "client.id": "me",
            "debug": "all",
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": "https://tokens.example/",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "secret",
        },
        3_000,
    )
    assert reached is not None
    assert (reached.client_id, reached.request_timeout_ms) == ("me", 3_000)
    assert reached.retries.timeout_ms == 3_000
    assert reached.security == SecurityOptions(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://tokens.example/",
        sasl_oauthbearer_client_credentials_client_id="me",
        sasl_oauthbearer_client_credentials_client_secret="secret",
    )


def test_token_endpoint_ca_is_translated() -> None:
    given = consumer_options({"https.ca.location": "ca.pem"})
    assert given == {"sasl_oauthbearer_ssl_cafile": "ca.pem"}


def test_values_are_converted_to_types_of_options() -> None:
    given = consumer_options(
        {
            "check.crcs": "false",
            "fetch.min.bytes": "7",
            "group.instance.id": "8",
            "sasl.oauthbearer.allowed.urls": "https://a.example/token, https://b.example/token",
        }
    )
    assert given == {
        "check_crcs": False,
        "fetch_min_bytes": 7,
        "group_instance_id": "8",
        "sasl_oauthbearer_allowed_urls": ("https://a.example/token", "https://b.example/token"),
    }
    with pytest.raises(CommandError, match=r"check\.crcs=no: must be true or false"):
        consumer_options({"check.crcs": "no"})


@pytest.mark.parametrize(
    "only_librdkafkas",
    [
        {**TLS, "ssl.keystore.location": "me.p12"},
        {**TLS, "ssl.key.pem": "-----BEGIN"},
        {**TLS, "enable.ssl.certificate.verification": "false"},
        {**TLS, "ssl.ca.location": "."},
        {**TLS, "ssl.ca.location": "probe"},
        {"https.ca.pem": "-----BEGIN"},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "kafka"},
        {"ssl.ca.location": "/none"},
    ],
)
def test_librdkafka_only_properties_give_none(only_librdkafkas: dict[str, str]) -> None:
    assert client_options(only_librdkafkas, 3_000) is None


def test_consumer_with_librdkafka_property_is_rejected() -> None:
    with pytest.raises(CommandError, match=r"ssl\.keystore\.location works only in librdkafka"):
        consumer_options({"ssl.keystore.location": "me.p12"})


@pytest.mark.parametrize("protocol", ["sasl_plaintext", "SASL_SSL"])
def test_sasl_without_mechanism_is_refused(protocol: str) -> None:
    given = [f"security.protocol={protocol}"]
    with pytest.raises(CommandError, match=f"{protocol} needs a mechanism.*SCRAM-SHA-512"):
        connection_properties({"properties": given}, {})
    for name in ("sasl.mechanism", "sasl.mechanisms"):
        found = connection_properties({"properties": [*given, f"{name}=PLAIN"]}, {}).values
        assert found[name] == "PLAIN"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], (5_000, 20_000)),
        (["--timeout-ms", "5000"], (5_000, 5_000)),
        (["--timeout-ms", "30000"], (30_000, 30_000)),
    ],
)
def test_wait_for_coordinator_is_limited_by_given_timeout(
    given: list[str], expected: tuple[int, int]
) -> None:
    limits = []
    app = command_app()

    @app.command()
    @with_coordinators()
    def ask(cluster: ClusterClient) -> None:
        options = client_options(cluster.properties, cluster.timeout_ms, cluster.retry_timeout_ms)
        assert options is not None
        limits.append((options.request_timeout_ms, options.retries.timeout_ms))

    CliRunner().invoke(app, given, catch_exceptions=False)
    assert limits == [expected]
