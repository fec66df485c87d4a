"""Translation of Java properties into librdkafka properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.console.common.errors import CommandError
from partage.console.common.java_properties import parse_properties, read_properties, to_librdkafka

PEM = b"-----BEGIN CERTIFICATE-----\n"
JKS, PKCS12 = b"\xfe\xed\xfe\xed\x00\x00", b"\x30\x82\x0a\x00"


def test_parse_java_properties() -> None:
    text = r"""
# a comment
! another
a=1
b : 2
c 3
  d  =  four words = yes
e=one \
    two
f=tab\tunicode\u00e9 back\\slash
g\:h=i
j
k=ends with a backslash\\
l=last"""
    assert dict(parse_properties(text)) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "four words = yes",
        "e": "one two",
        "f": "tab\tunicode\xe9 back\\slash",
        "g:h": "i",
        "j": "",
        "k": "ends with a backslash\\",
        "l": "last",
    }


def test_password_login_is_translated() -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="al\\"ice" password=\'se cret\';'
    )
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": jaas,
        "max.poll.records": "5",
        "request.timeout.ms": "7",
    }
    assert to_librdkafka(java) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": 'al"ice',
        "sasl.password": "se cret",
        "socket.timeout.ms": "7",
    }


def test_login_with_token_endpoint_is_translated() -> None:
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        "clientId=flights clientSecret=secret scope=kafka;"
    )
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    java = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": handler,
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "sasl.jaas.config": jaas,
    }
    assert to_librdkafka(java) == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "sasl.oauthbearer.client.id": "flights",
        "sasl.oauthbearer.client.secret": "secret",
        "sasl.oauthbearer.scope": "kafka",
    }


@pytest.mark.parametrize(
    ("java", "native"),
    [
        (
            {"ssl.truststore.type": "pem", "ssl.truststore.location": "ca.pem"},
            {"ssl.ca.location": "ca.pem"},
        ),
        ({"ssl.truststore.certificates": "-----"}, {"ssl.ca.pem": "-----"}),
        (
            {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": "me.p12",
                "ssl.keystore.password": "x",
            },
            {"ssl.keystore.location": "me.p12", "ssl.keystore.password": "x"},
        ),
        (
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "me.pem",
                "ssl.key.password": "x",
            },
            {
                "ssl.key.location": "me.pem",
                "ssl.certificate.location": "me.pem",
                "ssl.key.password": "x",
            },
        ),
        (
            {"ssl.keystore.key": "K", "ssl.keystore.certificate.chain": "C"},
            {"ssl.key.pem": "K", "ssl.certificate.pem": "C"},
        ),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
    ],
)
def test_key_and_trust_stores_are_translated(java: dict[str, str], native: dict[str, str]) -> None:
    assert to_librdkafka(java) == native


@pytest.mark.parametrize("declared", [{}, {"ssl.keystore.type": "JKS"}])
def test_key_store_is_recognized_by_content(tmp_path: Path, declared: dict[str, str]) -> None:
    """As in Java, the type JKS also reads PKCS#12, which is what keytool writes by default."""
    store = tmp_path / "client.jks"
    store.write_bytes(PKCS12)
    java = {"ssl.keystore.location": str(store), "ssl.keystore.password": "x", **declared}
    assert to_librdkafka(java) == {
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "x",
    }
    store.write_bytes(PEM)
    assert to_librdkafka(java) == {
        "ssl.key.location": str(store),
        "ssl.certificate.location": str(store),
    }


def test_trust_store_in_pem_needs_no_type(tmp_path: Path) -> None:
    store = tmp_path / "authority.pem"
    store.write_bytes(PEM)
    assert to_librdkafka({"ssl.truststore.location": str(store)}) == {"ssl.ca.location": str(store)}


def test_unusable_store_error_has_commands_that_convert_it(tmp_path: Path) -> None:
    store = tmp_path / "my.jks"
    store.write_bytes(JKS)
    to_pkcs12 = f"keytool -importkeystore -srckeystore {store} -destkeystore {tmp_path}/my.p12 "
    with pytest.raises(ValueError, match=r"ssl\.keystore\.location=.* is a JKS store") as raised:
        to_librdkafka({"ssl.keystore.location": str(store)})
    assert to_pkcs12 in str(raised.value)
    with pytest.raises(ValueError, match="is a JKS store") as raised:
        to_librdkafka({"ssl.truststore.location": str(store)})
    to_pem = f"openssl pkcs12 -in {tmp_path}/my.p12 -nokeys -out {tmp_path}/my.pem"
    assert to_pkcs12 in str(raised.value)
    assert to_pem in str(raised.value)
    store.write_bytes(PKCS12)
    with pytest.raises(ValueError, match="is a PKCS#12 store") as raised:
        to_librdkafka({"ssl.truststore.location": str(store)})
    assert f"openssl pkcs12 -in {store} -nokeys -out {tmp_path}/my.pem" in str(raised.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ssl.truststore.location=trust.jks", "ssl.truststore.location=trust.jks: no such file"),
        ("ssl.keystore.location=key.jks", "ssl.keystore.location=key.jks: no such file"),
        ("sasl.jaas.config=com.example.OtherModule required;", "other than PlainLoginModule"),
        ("sasl.jaas.config=x.PlainLoginModule required username=a;", "has no password"),
        ("sasl.jaas.config=x.OAuthBearerLoginModule required clientId=a;", "has no clientSecret"),
    ],
)
def test_unsupported_properties_are_rejected(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(line)
    with pytest.raises(CommandError, match=r"client\.properties: ") as caught:
        read_properties(path)
    assert says in caught.value.message
    assert caught.value.exit_code == 2


def test_unreadable_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a=\xe9\xff")
    for name, says in (("none", "No such file"), ("latin", "not UTF-8")):
        with pytest.raises(CommandError, match=says):
            read_properties(tmp_path / name)
