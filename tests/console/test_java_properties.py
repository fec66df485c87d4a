"""Translation of Java properties into librdkafka properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.console.common.errors import CommandError
from partage.console.common.java_properties import parse_properties, read_properties, to_librdkafka


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


@pytest.mark.parametrize(
    ("java", "native"),
    [
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"},
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


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ssl.truststore.location=trust.jks", "ssl.truststore is of type JKS"),
        ("ssl.keystore.location=key.jks", "ssl.keystore is of type JKS"),
        ("sasl.jaas.config=com.example.OtherModule required;", "other than PlainLoginModule"),
        ("sasl.jaas.config=x.PlainLoginModule required username=a;", "has no password"),
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
