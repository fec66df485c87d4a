"""Mapping of Kafka's TLS and SASL settings to the client's options."""

import logging
import pickle
import re
import sys

import pytest
from confluent_kafka import KafkaException, Producer
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from client.certificate_authority import Authority
from partage.client import SecurityOptions
from partage.spark.bounds import SparkOptionError
from partage.spark.client_cache import get_client
from partage.spark.kafka_options import parse_kafka_options
from partage.spark.sink.options import parse_write_options

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


@pytest.fixture
def stores(authority, tmp_path):
    """A PKCS#12 trust store and key store, with the password "changeit"."""
    trusted = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    own = authority.issue("client")
    certificate = x509.load_pem_x509_certificate(own.certificate.read_bytes())
    key = serialization.load_pem_private_key(own.key.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"changeit")
    trust_store = pkcs12.serialize_key_and_certificates(b"t", None, None, [trusted], encryption)
    key_store = pkcs12.serialize_key_and_certificates(b"k", key, certificate, [trusted], encryption)
    (tmp_path / "trust.jks").write_bytes(trust_store)
    (tmp_path / "keys.p12").write_bytes(key_store)
    return {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(tmp_path / "trust.jks"),  # keytool's default format
        "ssl.truststore.password": "changeit",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(tmp_path / "keys.p12"),
        "ssl.keystore.password": "changeit",
    }


def test_pkcs12_stores_are_converted_to_pem(authority, stores):
    options = parsed(stores)
    assert options.ssl_cadata == authority.certificate.read_text()
    assert options.ssl_certdata.count("BEGIN CERTIFICATE") == 2
    assert options.ssl_certdata.endswith(authority.certificate.read_text() + pem_key(options))
    assert "BEGIN ENCRYPTED PRIVATE KEY" in pem_key(options)
    assert "PRIVATE KEY" not in repr(options)
    assert "changeit" not in repr(options)


def test_pkcs12_stores_are_loaded_for_writing(stores):
    given = {f"kafka.{name}": value for name, value in stores.items()}
    options = parse_write_options(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **given}, is_stream=False
    )
    quiet = {"logger": logging.getLogger("discarded")}
    Producer(dict(options.producer), **quiet)  # librdkafka loads the stores here
    wrong = {**dict(options.producer), "ssl.key.password": "wrong"}
    with pytest.raises(KafkaException, match="ssl"):
        Producer(wrong, **quiet)


def pem_key(options):
    return options.ssl_certdata[options.ssl_certdata.index("-----BEGIN ENCRYPTED") :]


def test_pem_texts_are_mapped(authority):
    own = authority.issue("client")
    chain, key = own.certificate.read_text(), own.key.read_text()
    given = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": key,
    }
    assert parsed(given).ssl_certdata == f"{chain}\n{key}\n"


@pytest.mark.parametrize("store", ["truststore", "keystore"])
def test_wrong_store_password_is_rejected(stores, store):
    with pytest.raises(SparkOptionError, match=r"cannot be read as PKCS#12: .*password") as raised:
        parsed({**stores, f"ssl.{store}.password": "wrong"})
    assert "'wrong'" not in str(raised.value)


def test_trust_store_without_key_is_no_key_store(stores):
    given = {**stores, "ssl.keystore.location": stores["ssl.truststore.location"]}
    with pytest.raises(SparkOptionError, match=r"trust\.jks contains no key with its certificate"):
        parsed(given)


def test_jks_store_is_rejected_with_keytool_command(tmp_path):
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    converted = tmp_path / "trust.p12"
    command = (
        f"keytool -importkeystore -srckeystore {store} -destkeystore {converted} "
        f"-deststoretype PKCS12; then set kafka.ssl.truststore.location={converted}"
    )
    with pytest.raises(SparkOptionError, match=re.escape(command)):
        parsed({"security.protocol": "SSL", "ssl.truststore.location": str(store)})


@pytest.mark.parametrize(("store", "flag"), [("truststore", " -nokeys"), ("keystore", "")])
def test_pkcs12_without_package_is_rejected_with_openssl_command(monkeypatch, stores, store, flag):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    monkeypatch.delattr(serialization, "pkcs12")
    given = {"security.protocol": "SSL", f"ssl.{store}.location": stores[f"ssl.{store}.location"]}
    command = r"partage\[pkcs12\]'.* openssl pkcs12 -in \S+" + flag + r" -out \S+\.pem; then set"
    with pytest.raises(SparkOptionError, match=command):
        parsed(given)


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
            r"kafka\.ssl\.truststore\.location: x\.jks: No such file or directory",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.key": "x"},
            r"certificate\.chain and kafka\.ssl\.keystore\.key must be set together",
        ),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "the client uses TLSv1.2 and TLSv1.3"),
        ({"sasl.kerberos.service.name": "kafka"}, "Kerberos is not available; use SCRAM"),
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
