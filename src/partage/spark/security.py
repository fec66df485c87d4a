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
#: Key and trust stores: only PEM files, because Python cannot read Java's formats.
_STORES: Final = {"ssl.truststore": "ssl_cafile", "ssl.keystore": "ssl_certfile"}
_STORE_NAMES: Final = tuple(f"{store}.{what}" for store in _STORES for what in ("location", "type"))
_LOGIN_MODULES: Final = {
    "PlainLoginModule": {"username": "sasl_username", "password": "sasl_password"},
    "ScramLoginModule": {"username": "sasl_username", "password": "sasl_password"},
    "OAuthBearerLoginModule": {
        "clientId": "sasl_oauthbearer_client_credentials_client_id",
        "clientSecret": "sasl_oauthbearer_client_credentials_client_secret",
        "scope": "sasl_oauthbearer_scope",
    },
}

#: All options that have an effect.
SECURITY_OPTION_NAMES: Final = (*_OPTIONS, *_STORE_NAMES, _JAAS)


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
        for name, (option, read) in _OPTIONS.items()
        if name in given
    }
    taken |= _parse_stores(given)
    if _JAAS in given:
        taken |= _parse_login(given[_JAAS])
    try:
        options = parse_security_options(taken)
        check_usable(options)
    except InvalidSecurityOptionError as error:
        raise SparkOptionError(
            f"{_PREFIX}security.protocol and its related options: {error}"
        ) from None
    return options


def _parse_stores(given: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for store, option in _STORES.items():
        kind = given.get(f"{store}.type", "JKS").strip().upper()
        location = given.get(f"{store}.location")
        if location is not None:
            if kind != "PEM":
                raise SparkOptionError(
                    f"{_PREFIX}{store}.location is of type {kind}, which Python cannot read; "
                    f"convert it to PEM and set {_PREFIX}{store}.type=PEM"
                )
            found[option] = location
    return found


def _parse_login(text: str) -> dict[str, str]:
    module, options = parse_jaas(text)
    if module not in _LOGIN_MODULES:
        raise SparkOptionError(f"{_PREFIX}{_JAAS} must name one of {', '.join(_LOGIN_MODULES)}")
    return {
        option: options[name] for name, option in _LOGIN_MODULES[module].items() if name in options
    }
