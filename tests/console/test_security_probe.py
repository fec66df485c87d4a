"""Reasons for which a broker refuses connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from client.certificate_authority import AlertingPort, Authority
from client.sasl_broker import SaslScript
from client.scripted_broker import ScriptedBroker
from partage.console.common.cluster_client import ClusterClient
from partage.console.common.security_probe import security_error

TIMEOUT_MS = 30_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def reason(port: AlertingPort, properties: dict[str, str]) -> str | None:
    servers = {"bootstrap.servers": str(port.address)}
    return security_error({**servers, **properties}, TIMEOUT_MS)


def trusting(authority: Path) -> dict[str, str]:
    return {"security.protocol": "ssl", "ssl.ca.location": str(authority)}


def test_port_with_tls_is_named(authority: Authority) -> None:
    """librdkafka only reports that the connection was closed."""
    with AlertingPort(authority.issue("kafka", "127.0.0.1").server()) as port:
        text = reason(port, {})
    assert text is not None
    assert text.startswith(f"{port.address}: ")
    assert "security.protocol" in text


def test_missing_client_certificate_is_named(authority: Authority) -> None:
    server = authority.issue("kafka", "127.0.0.1").server(clients_of=authority)
    with AlertingPort(server) as port:
        text = reason(port, trusting(authority.certificate))
    assert text is not None
    assert text.startswith(f"{port.address}: it refused the client's certificate (")
    assert text.endswith("it requires one: set ssl.certificate.location and ssl.key.location")


def test_untrusted_broker_is_named(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    with AlertingPort(authority.issue("kafka", "127.0.0.1").server()) as port:
        text = reason(port, trusting(stranger.certificate))
    assert text is not None
    assert "Set ssl.ca.location to a file" in text


def test_required_login_is_named() -> None:
    async def main() -> tuple[str, str | None]:
        async with ScriptedBroker(SaslScript("PLAIN")) as broker:
            servers = {"bootstrap.servers": str(broker.address)}
            return servers["bootstrap.servers"], await asyncio.to_thread(
                security_error, servers, TIMEOUT_MS
            )

    address, text = asyncio.run(main())
    assert text == (
        f"{address}: it requires authentication by PLAIN; "
        "set security.protocol=SASL_PLAINTEXT and sasl.mechanism"
    )


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "::::", "nowhere"])
def test_unreachable_broker_gives_no_reason(servers: str) -> None:
    assert security_error({"bootstrap.servers": servers}, TIMEOUT_MS) is None


def test_librdkafka_only_properties_give_no_reason() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:1", "ssl.keystore.location": "me.p12"}
    assert security_error(properties, TIMEOUT_MS) is None


def test_error_of_token_endpoint_does_not_blame_the_broker() -> None:
    cluster = ClusterClient("127.0.0.1:1", {}, TIMEOUT_MS, verbose=False)
    text = 'Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}'
    cluster.recent_errors.append(KafkaError(KafkaError._AUTHENTICATION, text))
    failure = cluster.rejection_error()
    assert failure is not None
    assert failure.message == (
        'no OAuth token is available: {"error": "invalid_client"}; check sasl.oauthbearer.* in '
        "--command-config and -X"
    )
