"""The TLS and SASL options: names as in Python's Kafka clients, otherwise Kafka's."""

from __future__ import annotations

import difflib
import os
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from partage.model.arguments import InvalidArgumentError

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SASL_MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")

#: Names in kafka-python and aiokafka, from the time when PLAIN was the only mechanism.
SECURITY_ALIASES: Final = {
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
}
_SECRETS: Final = frozenset(
    {
        "ssl_certdata",
        "ssl_password",
        "sasl_password",
        "sasl_oauthbearer_client_credentials_client_secret",
    }
)
#: The options that are paths of files.
FILE_OPTION_NAMES: Final = frozenset(
    {"ssl_cafile", "ssl_certfile", "ssl_keyfile", "sasl_oauthbearer_ssl_cafile"}
)
_ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
_CLIENT_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
_CLIENT_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"


class InvalidSecurityOptionError(InvalidArgumentError):
    """A TLS or SASL option is unknown, missing, conflicts with another one, or cannot be used."""


class SecurityOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The security options of a client's connections.

    Its repr omits secrets. Files are read again for each connection, so certificates can be renewed
    in place.

    Raises:
        InvalidSecurityOptionError: The options conflict with each other.
    """

    security_protocol: str = "PLAINTEXT"
    #: A ready context, instead of all following ``ssl_`` options.
    ssl_context: ssl.SSLContext | None = None
    ssl_check_hostname: bool = True
    #: Trusted authorities as a PEM file or PEM text; the system's if neither is set.
    ssl_cafile: str | None = None
    ssl_cadata: str | None = None
    #: The client certificate with its chain, and its key (in the same file if None).
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    #: Alternative: the client certificate, its chain and its key, as PEM text.
    ssl_certdata: str | None = None
    ssl_password: str | None = None
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = None
    #: Called for each authentication; see `partage.client.security.tokens`.
    sasl_oauth_token_provider: Callable[[], Any] | Any = None
    #: Alternative: a token endpoint, called with the client's credentials (KIP-768).
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_header_urlencode: bool = False
    #: If not empty, only these endpoints are allowed. An endpoint without TLS must be listed here.
    sasl_oauthbearer_allowed_urls: tuple[str, ...] = ()
    #: Trusted authorities for the endpoint, a PEM file; the system's if None.
    sasl_oauthbearer_ssl_cafile: str | None = None

    def __post_init__(self) -> None:
        _check_types(self)
        _check_protocol(self)
        _check_tls(self)
        _check_sasl(self)

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """True if the client authenticates with SASL."""
        return self.security_protocol.startswith("SASL_")

    def __repr__(self) -> str:
        return f"SecurityOptions({', '.join(f'{n}={v!r}' for n, v in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, "***" if name in _SECRETS else getattr(self, name)) for name in _given(self)]


#: The names of all security options, including aliases.
SECURITY_OPTION_NAMES: Final = frozenset((*SecurityOptions.__struct_fields__, *SECURITY_ALIASES))


def parse_security_options(given: Mapping[str, Any]) -> SecurityOptions:
    """Return the options in ``given`` by name; aliases such as ``sasl_plain_username`` are allowed.

    Raises:
        InvalidSecurityOptionError: An option is unknown, given twice, or conflicts with another
            one.
    """
    known = SecurityOptions.__struct_fields__
    given_names: dict[str, str] = {}  # by the name of the option
    for given_name in given:
        name = SECURITY_ALIASES.get(given_name, given_name)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InvalidSecurityOptionError(f"{given_name} is not an option of TLS or SASL{hint}")
        if name in given_names:
            raise InvalidSecurityOptionError(
                f"{given_names[name]} and {given_name} are the same option; give one"
            )
        given_names[name] = given_name
    return SecurityOptions(
        **{name: _to_text(name, given[given_names[name]]) for name in given_names}
    )


def _to_text(name: str, value: Any) -> Any:
    """Return the path of a file as a string, and any other value unchanged."""
    return (
        os.fspath(value) if name in FILE_OPTION_NAMES and isinstance(value, os.PathLike) else value
    )


def _given(options: SecurityOptions) -> list[str]:
    """Return the names of options that differ from their defaults."""
    defaults = zip(SecurityOptions.__struct_fields__, _DEFAULTS, strict=True)
    return [name for name, default in defaults if getattr(options, name) != default]


_DEFAULTS: Final = tuple(
    field.default for field in msgspec.structs.fields(SecurityOptions)
)  # Every field has a default


_TYPES: Final[Mapping[str, Any]] = {
    field.name: field.type for field in msgspec.structs.fields(SecurityOptions)
}
#: Types of options, with the text that names them in messages.
_TYPE_NAMES: Final[Mapping[Any, str]] = {
    bool: "True or False",
    str | None: "a string or None",
    ssl.SSLContext | None: "an ssl.SSLContext or None",
}


def _check_types(options: SecurityOptions) -> None:
    """Reject texts whose meaning would differ: "false" is true, and a text contains its parts."""
    for name, kind in _TYPES.items():
        if kind in _TYPE_NAMES and not isinstance(getattr(options, name), kind):
            raise InvalidSecurityOptionError(f"{name} must be {_TYPE_NAMES[kind]}")
    allowed: Any = options.sasl_oauthbearer_allowed_urls
    is_list = isinstance(allowed, tuple | list) and all(isinstance(url, str) for url in allowed)
    if not is_list:
        raise InvalidSecurityOptionError("sasl_oauthbearer_allowed_urls must be a tuple of URLs")


def _check_protocol(options: SecurityOptions) -> None:
    protocol = options.security_protocol
    if protocol not in SECURITY_PROTOCOLS:
        raise InvalidSecurityOptionError(
            f"security_protocol must be one of {', '.join(SECURITY_PROTOCOLS)}, not {protocol!r}"
        )
    for prefix, is_used, proper in (
        ("ssl_", options.uses_tls, "SSL or SASL_SSL"),
        ("sasl_", options.uses_sasl, "SASL_SSL or SASL_PLAINTEXT"),
    ):
        useless = [name for name in _given(options) if name.startswith(prefix)]
        if useless and not is_used:
            raise InvalidSecurityOptionError(
                f"{useless[0]} has no effect with security_protocol={protocol}; set {proper}"
            )


def _check_tls(options: SecurityOptions) -> None:
    if options.ssl_context is not None:
        others = [n for n in _given(options) if n.startswith("ssl_") and n != "ssl_context"]
        if others:
            raise InvalidSecurityOptionError(
                f"{others[0]} has no effect beside ssl_context; set it on the context"
            )
        if options.ssl_context.minimum_version < ssl.TLSVersion.TLSv1_2:
            raise InvalidSecurityOptionError(
                "ssl_context allows TLS older than 1.2; set its minimum_version"
            )
    if options.ssl_certdata is not None:
        if options.ssl_certfile is not None or options.ssl_keyfile is not None:
            raise InvalidSecurityOptionError(
                "ssl_certdata and files cannot be combined; give ssl_certdata or ssl_certfile"
            )
    elif options.ssl_certfile is None and (options.ssl_keyfile or options.ssl_password):
        raise InvalidSecurityOptionError("ssl_keyfile and ssl_password need ssl_certfile")


def _check_sasl(options: SecurityOptions) -> None:
    if not options.uses_sasl:
        return
    mechanism = options.sasl_mechanism
    if mechanism not in SASL_MECHANISMS:
        given = "missing" if mechanism is None else f"{mechanism!r}"
        raise InvalidSecurityOptionError(
            f"sasl_mechanism is {given}; it must be one of {', '.join(SASL_MECHANISMS)}"
        )
    if mechanism == "OAUTHBEARER":
        _check_oauth(options)
        return
    for name in ("sasl_username", "sasl_password"):
        value = getattr(options, name)
        if not value:
            raise InvalidSecurityOptionError(f"sasl_mechanism={mechanism} needs {name}")
        if "\0" in value:  # NUL separates user and password in PLAIN (RFC 4616)
            raise InvalidSecurityOptionError(f"{name} contains a NUL character")


def _check_oauth(options: SecurityOptions) -> None:
    by_endpoint = options.sasl_oauthbearer_token_endpoint_url is not None
    if by_endpoint == (options.sasl_oauth_token_provider is not None):
        raise InvalidSecurityOptionError(
            f"sasl_mechanism=OAUTHBEARER needs either sasl_oauth_token_provider or {_ENDPOINT}"
        )
    if by_endpoint:
        for name in (_CLIENT_ID, _CLIENT_SECRET):
            if not getattr(options, name):
                raise InvalidSecurityOptionError(f"{_ENDPOINT} needs {name}")
        _check_endpoint(options)


def _check_endpoint(options: SecurityOptions) -> None:
    """Check that the endpoint is allowed, and uses TLS unless it is listed.

    A free choice was a vulnerability: https://nvd.nist.gov/vuln/detail/CVE-2025-27817.
    """
    url = options.sasl_oauthbearer_token_endpoint_url or ""
    allowed = options.sasl_oauthbearer_allowed_urls
    if allowed and url not in allowed:
        raise InvalidSecurityOptionError(f"{_ENDPOINT} is not among sasl_oauthbearer_allowed_urls")
    scheme = url.partition("://")[0].lower()
    if scheme not in ("https", "http"):
        raise InvalidSecurityOptionError(f"{_ENDPOINT} must begin with https://")
    if scheme == "http" and not allowed:
        raise InvalidSecurityOptionError(
            f"{_ENDPOINT} would send the secret unencrypted; use https://, or name the whole "
            "URL in sasl_oauthbearer_allowed_urls if this is intended"
        )
