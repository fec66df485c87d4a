"""TLS and SASL settings under Java's names, and under librdkafka's names where they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from partage.client.security.credentials import check_usable
from partage.client.security.jaas import parse_jaas
from partage.client.security.options import (
    InvalidSecurityOptionError,
    SecurityOptions,
    parse_security_options,
)
from partage.spark.bounds import SparkOptionError
from partage.spark.key_stores import (
    StoreFormat,
    jks_error,
    read_key_store,
    read_trust_store,
    store_format,
)
from partage.spark.option_values import parse_boolean, parse_choice

_PREFIX: Final = "kafka."
_JAAS: Final = "sasl.jaas.config"


def _text(name: str, text: str) -> str:
    return text


def _parse_hostname_check(name: str, text: str) -> bool:
    """Parse the host name check; in Java, an empty algorithm name switches it off."""
    return bool(text.strip()) and parse_choice(name, text, ("https", "none")) == "https"


#: Option name -> (client option to set, parser of the value).
_OPTIONS: Final[dict[str, tuple[str, Callable[[str, str], object]]]] = {
    "security.protocol": ("security_protocol", lambda name, text: text.strip().upper()),
    "ssl.endpoint.identification.algorithm": ("ssl_check_hostname", _parse_hostname_check),
    "ssl.key.password": ("ssl_password", _text),
    "ssl.ca.location": ("ssl_cafile", _text),
    "ssl.certificate.location": ("ssl_certfile", _text),
    "ssl.key.location": ("ssl_keyfile", _text),
    "ssl.truststore.certificates": ("ssl_cadata", _text),
    "sasl.mechanism": ("sasl_mechanism", lambda name, text: text.strip().upper()),
    "sasl.username": ("sasl_username", _text),
    "sasl.password": ("sasl_password", _text),
    "sasl.oauthbearer.token.endpoint.url": ("sasl_oauthbearer_token_endpoint_url", _text),
    "sasl.oauthbearer.client.credentials.client.id": (
        "sasl_oauthbearer_client_credentials_client_id",
        _text,
    ),
    "sasl.oauthbearer.client.credentials.client.secret": (
        "sasl_oauthbearer_client_credentials_client_secret",
        _text,
    ),
    "sasl.oauthbearer.scope": ("sasl_oauthbearer_scope", _text),
    "sasl.oauthbearer.header.urlencode": ("sasl_oauthbearer_header_urlencode", parse_boolean),
}
_TRUST: Final = "ssl.truststore"
_KEYS: Final = "ssl.keystore"
_STORE_OPTIONS: Final = (
    *(f"{store}.{part}" for store in (_TRUST, _KEYS) for part in ("location", "password", "type")),
    f"{_KEYS}.certificate.chain",
    f"{_KEYS}.key",
)
_STORE_TYPES: Final = ("jks", "pem", "pkcs12")
_PROTOCOLS: Final = "ssl.enabled.protocols"
_LOGIN_MODULES: Final = {
    "PlainLoginModule": {"username": "sasl_username", "password": "sasl_password"},
    "ScramLoginModule": {"username": "sasl_username", "password": "sasl_password"},
    "OAuthBearerLoginModule": {
        "clientId": "sasl_oauthbearer_client_credentials_client_id",
        "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
        "scope": "sasl_oauthbearer_scope",
    },
}

#: Reason for rejecting a setting that names a Java class.
JAVA_CLASS: Final = "Java classes cannot be run here"
_KERBEROS: Final = "Kerberos is not available; use SCRAM, PLAIN or OAUTHBEARER"
_ASSERTION: Final = "tokens by assertion are not available; use client credentials"

#: All options that have an effect.
SECURITY_OPTION_NAMES: Final = (*_OPTIONS, *_STORE_OPTIONS, _JAAS, _PROTOCOLS)
#: Kafka settings without an effect: they select Java's providers, or check tokens of clients.
NO_EFFECT: Final = (
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
#: Kafka settings that are rejected, with the reasons.
UNSUPPORTED: Final = {
    "sasl.client.callback.handler.class": JAVA_CLASS,
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.kerberos.service.name": _KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
    "sasl.login.callback.handler.class": JAVA_CLASS,
    "sasl.login.class": JAVA_CLASS,
    "sasl.oauthbearer.assertion.algorithm": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.aud": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.exp.seconds": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.iss": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.jti.include": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.nbf.seconds": _ASSERTION,
    "sasl.oauthbearer.assertion.claim.sub": _ASSERTION,
    "sasl.oauthbearer.assertion.file": _ASSERTION,
    "sasl.oauthbearer.assertion.private.key.file": _ASSERTION,
    "sasl.oauthbearer.assertion.private.key.passphrase": _ASSERTION,
    "sasl.oauthbearer.assertion.template.file": _ASSERTION,
    "sasl.oauthbearer.jwt.retriever.class": JAVA_CLASS,
    "sasl.oauthbearer.jwt.validator.class": JAVA_CLASS,
    "security.providers": JAVA_CLASS,
    "ssl.cipher.suites": "the client uses OpenSSL's ciphers; restrict them on the brokers",
    "ssl.engine.factory.class": JAVA_CLASS,
}


def parse_security(given: Mapping[str, str]) -> SecurityOptions:
    """Parse the TLS and SASL settings.

    The files are checked on the driver. Executors need them at the same paths.

    Args:
        given: Kafka settings by name, without the prefix ``kafka.``. Other settings are ignored.

    Raises:
        SparkOptionError: if the settings contradict each other, or name an unusable file.
    """
    _check_protocols(given)
    parsed: dict[str, Any] = {
        option: parse(_PREFIX + name, given[name])
        for name, (option, parse) in _OPTIONS.items()
        if name in given
    }
    parsed |= _parse_trust_store(given) | _parse_key_store(given)
    if _JAAS in given:
        parsed |= _parse_login(given[_JAAS])
    try:
        options = parse_security_options(parsed)
        check_usable(options)
    except InvalidSecurityOptionError as error:
        raise SparkOptionError(
            f"{_PREFIX}security.protocol and its related options: {error}"
        ) from None
    return options


def _parse_trust_store(given: Mapping[str, str]) -> dict[str, str]:
    location = given.get(f"{_TRUST}.location")
    if location is None:
        return {}
    name = f"{_PREFIX}{_TRUST}.location"
    match _store_format(_TRUST, given):
        case "PKCS12":
            password = given.get(f"{_TRUST}.password")
            return {"ssl_cadata": read_trust_store(name, location, password)}
        case "JKS":
            raise jks_error(name, location)
    return {"ssl_cafile": location}


def _parse_key_store(given: Mapping[str, str]) -> dict[str, str]:
    chain, key = given.get(f"{_KEYS}.certificate.chain"), given.get(f"{_KEYS}.key")
    if (chain is None) != (key is None):
        raise SparkOptionError(
            f"{_PREFIX}{_KEYS}.certificate.chain and {_PREFIX}{_KEYS}.key must be set together"
        )
    location = given.get(f"{_KEYS}.location")
    if location is None:
        return {} if chain is None else {"ssl_certdata": f"{chain}\n{key}\n"}
    name = f"{_PREFIX}{_KEYS}.location"
    if chain is not None:
        raise SparkOptionError(f"{name} and {_PREFIX}{_KEYS}.certificate.chain are both set")
    match _store_format(_KEYS, given):
        case "PKCS12":
            password = given.get(f"{_KEYS}.password")
            found = {"ssl_certdata": read_key_store(name, location, password)}
            return found | ({"ssl_password": password} if password else {})
        case "JKS":
            raise jks_error(name, location)
    return {"ssl_certfile": location}


def _store_format(store: str, given: Mapping[str, str]) -> StoreFormat:
    """Return the format of a store, from its file unless the declared type is PEM."""
    declared = f"{store}.type"
    if (
        declared in given
        and parse_choice(_PREFIX + declared, given[declared], _STORE_TYPES) == "pem"
    ):
        return "PEM"
    name = f"{store}.location"
    return store_format(_PREFIX + name, given[name])


def _check_protocols(given: Mapping[str, str]) -> None:
    """Accept only both TLS 1.2 and 1.3, Kafka's default, which is what the client uses."""
    if _PROTOCOLS in given:
        names = {name.strip() for name in given[_PROTOCOLS].split(",")}
        if not {"TLSv1.2", "TLSv1.3"} <= names:
            raise SparkOptionError(
                f"{_PREFIX}{_PROTOCOLS}={given[_PROTOCOLS]} is not supported: the client uses "
                "TLSv1.2 and TLSv1.3; restrict them on the brokers"
            )


def _parse_login(text: str) -> dict[str, str]:
    module, options = parse_jaas(text)
    if module not in _LOGIN_MODULES:
        raise SparkOptionError(f"{_PREFIX}{_JAAS} must name one of {', '.join(_LOGIN_MODULES)}")
    return {
        option: options[name] for name, option in _LOGIN_MODULES[module].items() if name in options
    }
