"""TLS and SASL settings under Java's names, and under librdkafka's names where they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from partage.client.security.jaas import parse_jaas
from partage.client.security.options import (
    InvalidSecurityOptionError,
    SecurityOptions,
    parse_security_options,
)
from partage.client.security.tls import make_context
from partage.spark.bounds import BadOption
from partage.spark.values import one_of, truth

_PREFIX: Final = "kafka."
_JAAS: Final = "sasl.jaas.config"


def _text(name: str, text: str) -> str:
    return text


def _is_checked(name: str, text: str) -> bool:
    """Parse the host name check; in Java, an empty algorithm name switches it off."""
    return bool(text.strip()) and one_of(name, text, ("https", "none")) == "https"


#: Option name -> (client option to set, parser of the value).
_PLAIN: Final[dict[str, tuple[str, Callable[[str, str], object]]]] = {
    "security.protocol": ("security_protocol", lambda name, text: text.strip().upper()),
    "ssl.endpoint.identification.algorithm": ("ssl_check_hostname", _is_checked),
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
    "sasl.oauthbearer.header.urlencode": ("sasl_oauthbearer_header_urlencode", truth),
}
#: Key and trust stores: only PEM files, because Python cannot read Java's formats.
_STORES: Final = {"ssl.truststore": "ssl_cafile", "ssl.keystore": "ssl_certfile"}
_STORE_NAMES: Final = tuple(f"{store}.{what}" for store in _STORES for what in ("location", "type"))
_LOGINS: Final = {
    "PlainLoginModule": {"username": "sasl_username", "password": "sasl_password"},
    "ScramLoginModule": {"username": "sasl_username", "password": "sasl_password"},
    "OAuthBearerLoginModule": {
        "clientId": "sasl_oauthbearer_client_credentials_client_id",
        "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
        "scope": "sasl_oauthbearer_scope",
    },
}

#: All options that have an effect.
NAMES: Final = (*_PLAIN, *_STORE_NAMES, _JAAS)


def parse_security(given: Mapping[str, str]) -> SecurityOptions:
    """Parse the TLS and SASL settings.

    The files are checked on the driver. Executors need them at the same paths.

    Args:
        given: Kafka settings by name, without the prefix ``kafka.``. Other settings are ignored.

    Raises:
        SparkOptionError: if the settings contradict each other, or name an unusable file.
    """
    taken: dict[str, Any] = {
        option: read(_PREFIX + name, given[name])
        for name, (option, read) in _PLAIN.items()
        if name in given
    }
    taken |= _stores(given)
    if _JAAS in given:
        taken |= _login(given[_JAAS])
    try:
        options = parse_security_options(taken)
        make_context(options)
    except InvalidSecurityOptionError as error:
        raise BadOption(f"{_PREFIX}security.protocol and its related options: {error}") from None
    return options


def _stores(given: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for store, option in _STORES.items():
        kind = given.get(f"{store}.type", "JKS").strip().upper()
        location = given.get(f"{store}.location")
        if location is not None:
            if kind != "PEM":
                raise BadOption(
                    f"{_PREFIX}{store}.location is of type {kind}, which Python cannot read; "
                    f"convert it to PEM and set {_PREFIX}{store}.type=PEM"
                )
            found[option] = location
    return found


def _login(text: str) -> dict[str, str]:
    module, options = parse_jaas(text)
    if module not in _LOGINS:
        raise BadOption(f"{_PREFIX}{_JAAS} must name one of {', '.join(_LOGINS)}")
    return {option: options[name] for name, option in _LOGINS[module].items() if name in options}
