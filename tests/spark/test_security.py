"""Mapping of Kafka's TLS and SASL settings to the client's options."""

import pickle

import pytest

from client.certificate_authority import Authority
from partage.client import SecurityOptions
from partage.spark.bounds import SparkOptionError
from partage.spark.client_cache import get_client
from partage.spark.kafka_options import parse_kafka_options

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" '
SECRET = 's3;c"r=et'
LOGIN = {"sasl.jaas.config": PLAIN + 'password="s3;c\\"r=et";'}
SASL = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "plain"}


def parsed(given):
    return parse_kafka_options({"bootstrap.servers": "a:1", **given}).client.security


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


def test_pem_stores_are_mapped(authority):
    own = authority.issue("client", password="open sesame").in_one_file()
    given = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own.certificate),
        "ssl.key.password": "open sesame",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert parsed(given) == SecurityOptions(
        security_protocol="SSL",
        ssl_cafile=str(authority.certificate),
        ssl_certfile=str(own.certificate),
        ssl_password="open sesame",
        ssl_check_hostname=False,
    )


def test_librdkafka_file_names_are_mapped(authority):
    own = authority.issue("client")
    given = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
        "ssl.certificate.location": str(own.certificate),
        "ssl.key.location": str(own.key),
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert parsed(given) == SecurityOptions(
        security_protocol="SSL",
        ssl_cafile=str(authority.certificate),
        ssl_certfile=str(own.certificate),
        ssl_keyfile=str(own.key),
    )


def test_inline_ca_certificates_are_mapped(authority):
    text = authority.certificate.read_text()
    given = {"security.protocol": "SSL", "ssl.truststore.certificates": text}
    assert parsed(given).ssl_cadata == text


@pytest.mark.parametrize("login", [LOGIN, {"sasl.username": "alice", "sasl.password": SECRET}])
def test_password_login_is_mapped(login):
    assert parsed({**SASL, **login}) == SecurityOptions(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password=SECRET,
    )


@pytest.mark.parametrize("in_jaas", [True, False])
def test_token_endpoint_is_mapped(in_jaas):
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://a/token",
    }
    if in_jaas:
        given["sasl.jaas.config"] = (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            "clientId='me' clientSecret=\"s3cret\" scope=kafka;"
        )
    else:
        name = "sasl.oauthbearer.client.credentials.client"
        given |= {f"{name}.id": "me", f"{name}.secret": "s3cret"}
        given["sasl.oauthbearer.scope"] = "kafka"
    assert parsed(given) == SecurityOptions(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://a/token",
        sasl_oauthbearer_client_credentials_client_id="me",
        sasl_oauthbearer_client_credentials_client_secret="s3cret",
        sasl_oauthbearer_scope="kafka",
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "x.jks"},
            r"truststore\.location is of type JKS, .* convert it to PEM and set kafka\.ssl\.trust",
        ),
        ({"security.protocol": "SSL", "ssl.ca.location": "x.pem"}, "x.pem: No such file"),
        (
            {**SASL, "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
            r"sasl\.jaas\.config must name one of PlainLoginModule, ScramLoginModule",
        ),
        ({**SASL, "sasl.jaas.config": PLAIN + ";"}, "needs sasl_password"),
        ({**SASL, "sasl.jass.config": "x"}, r"did you mean kafka\.sasl\.jaas\.config\?"),
        ({"ssl.endpoint.identification.algorithm": "no"}, "takes https or none, not 'no'"),
        ({"sasl.login.callback.handler.class": "x"}, "Java classes cannot be run here"),
    ],
)
def test_unusable_setting_is_rejected(given, why):
    with pytest.raises(SparkOptionError, match=why):
        parsed(given)


def test_credentials_are_pickled_and_separate_clients():
    given = parse_kafka_options({"bootstrap.servers": "a:1", **SASL, **LOGIN})
    travelled = pickle.loads(pickle.dumps(given))
    assert travelled == given
    assert SECRET not in repr(given)
    other = parse_kafka_options({"bootstrap.servers": "a:1"})
    one = get_client(given, is_known_to_answer=True)
    assert get_client(travelled, is_known_to_answer=True) is one
    assert get_client(other, is_known_to_answer=True) is not one
