"""TLS and SASL options: conflicts, aliases, and hidden secrets."""

import pickle
import ssl
import threading
from pathlib import Path

import pytest

import partage.sync
from partage.client import (
    ClientOptions,
    InvalidSecurityOptionError,
    SecurityOptions,
    parse_security_options,
)

PASSWORDS = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "s3cret"}
SASL = {"security_protocol": "SASL_SSL", **PASSWORDS}
OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
CLIENT = {
    "sasl_oauthbearer_client_credentials_client_id": "me",
    "sasl_oauthbearer_client_credentials_client_secret": "s3cret",
}
URL = "sasl_oauthbearer_token_endpoint_url"
ALLOWED = "sasl_oauthbearer_allowed_urls"


def old_context():
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    return context


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"security_protocol": "TLS"},
            "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, not 'TLS'",
        ),
        ({"ssl_cafile": "x"}, "ssl_cafile has no effect with security_protocol=PLAINTEXT; set SSL"),
        (PASSWORDS, "sasl_mechanism has no effect with .*; set SASL_SSL or SASL_PLAINTEXT"),
        ({"security_protocol": "SSL", **PASSWORDS}, "no effect with security_protocol=SSL"),
        ({**SASL, "security_protocol": "SASL_PLAINTEXT", "ssl_cafile": "x"}, "ssl_cafile has no"),
        (
            {"security_protocol": "SASL_SSL"},
            "sasl_mechanism is missing; it must be one of PLAIN, SCRAM",
        ),
        (
            {**SASL, "sasl_mechanism": "GSSAPI"},
            "sasl_mechanism is 'GSSAPI'; it must be one of PLAIN",
        ),
        ({**SASL, "sasl_password": None}, "sasl_mechanism=PLAIN needs sasl_password"),
        ({**SASL, "sasl_username": ""}, "sasl_mechanism=PLAIN needs sasl_username"),
        ({**SASL, "sasl_username": "alice\0bob"}, "sasl_username contains a NUL character"),
        ({"security_protocol": "SSL", "ssl_keyfile": "x"}, "need ssl_certfile"),
        (
            {"security_protocol": "SSL", "ssl_context": old_context()},
            r"allows TLS older than 1\.2; set its minimum_version",
        ),
        (
            {
                "security_protocol": "SSL",
                "ssl_context": ssl.create_default_context(),
                "ssl_cafile": "x",
            },
            "ssl_cafile has no effect beside ssl_context",
        ),
        (OAUTH, "needs either sasl_oauth_token_provider or sasl_oauthbearer_token_endpoint_url"),
        ({**OAUTH, URL: "https://a/", **CLIENT, "sasl_oauth_token_provider": str}, "either"),
        ({**OAUTH, URL: "https://a/"}, "needs sasl_oauthbearer_client_credentials_client_id"),
        ({**OAUTH, **CLIENT, URL: "http://a/"}, "unencrypted; use https://, or name the whole URL"),
        ({**OAUTH, **CLIENT, URL: "file:///etc/passwd"}, "must begin with https://"),
        ({**OAUTH, **CLIENT, URL: "ftp://a/", ALLOWED: ("ftp://a/",)}, "must begin with https://"),
        ({**OAUTH, **CLIENT, URL: "https://a/", ALLOWED: ("https://b/",)}, "is not among"),
        ({**OAUTH, **CLIENT, URL: "https://a/", ALLOWED: "https://a/b"}, "must be a tuple of URLs"),
        ({"security_protocol": "SSL", "ssl_check_hostname": "no"}, "must be True or False"),
        (
            {"sasl_user": "x"},
            "sasl_user is not an option of TLS or SASL; did you mean sasl_username?",
        ),
        (
            {"sasl_plain_password": "s3cret", **SASL},
            "^sasl_plain_password and sasl_password are the same option; give one$",
        ),
        (
            {**SASL, "sasl_plain_password": "s3cret"},
            "^sasl_password and sasl_plain_password are the same option; give one$",
        ),
    ],
)
def test_conflicting_options_are_rejected(given, why):
    with pytest.raises(InvalidSecurityOptionError, match=why) as raised:
        parse_security_options(given)
    assert "s3cret" not in str(raised.value)


def test_aliases_of_other_clients_are_accepted():
    given = {"sasl_plain_username": "alice", "sasl_plain_password": "s3cret"}
    ours = parse_security_options({**SASL})
    del given["sasl_plain_username"]
    theirs = parse_security_options(
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            **given,
        }
    )
    assert ours == theirs


def test_plaintext_endpoint_may_be_allowed_explicitly():
    options = parse_security_options({**OAUTH, **CLIENT, URL: "http://a/", ALLOWED: ("http://a/",)})
    assert options.sasl_oauthbearer_token_endpoint_url == "http://a/"


@pytest.mark.parametrize(
    "given",
    [
        SASL,
        {**OAUTH, **CLIENT, URL: "https://a/"},
        {"security_protocol": "SSL", "ssl_certfile": "x", "ssl_password": "s3cret"},
    ],
)
def test_repr_hides_secrets(given):
    options = ClientOptions(security=parse_security_options(given))
    for text in (repr(options), str(options), f"{options.security}"):
        assert "s3cret" not in text
        assert "***" in text
    rich = pytest.importorskip("rich.pretty").pretty_repr(options)
    assert "s3cret" not in rich


def test_repr_shows_given_options():
    assert repr(SecurityOptions()) == "SecurityOptions()"
    shown = "SecurityOptions(security_protocol='SSL', ssl_cafile='x')"
    assert repr(SecurityOptions(security_protocol="SSL", ssl_cafile="x")) == shown


def test_options_can_be_pickled_and_compared():
    """Spark sends them to its workers, which keep one client for each set of options."""
    options = ClientOptions(security=parse_security_options(SASL))
    travelled = pickle.loads(pickle.dumps(options))
    assert travelled == options
    assert hash(travelled) == hash(options)


@pytest.mark.parametrize("kind", [partage.Consumer, partage.sync.Consumer])
def test_consumer_accepts_security_options(kind):
    before = threading.active_count()
    with pytest.raises(InvalidSecurityOptionError, match="sasl_mechanism has no effect"):
        kind("127.0.0.1:9092", **PASSWORDS)
    with pytest.raises(InvalidSecurityOptionError, match=r"ssl_cafile=nowhere\.pem: No such file"):
        kind("127.0.0.1:9092", security_protocol="SSL", ssl_cafile="nowhere.pem")
    with pytest.raises(TypeError, match="did you mean 'sasl_mechanism'"):
        kind("127.0.0.1:9092", sasl_mechanisms="PLAIN")
    assert threading.active_count() == before


def test_files_as_paths_are_accepted():
    options = parse_security_options(
        {
            "security_protocol": "SSL",
            "ssl_cafile": Path("authority.pem"),
            "ssl_certfile": Path("client.crt"),
            "ssl_keyfile": Path("client.key"),
        }
    )
    files = (options.ssl_cafile, options.ssl_certfile, options.ssl_keyfile)
    assert files == ("authority.pem", "client.crt", "client.key")
