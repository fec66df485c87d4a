"""The options of TLS and SASL: names as Python's Kafka clients have them, or else Kafka's own."""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SASL_MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")

#: kafka-python's and aiokafka's names, from when PLAIN was all there was.
_ALIASES: Final = {
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
}
_SECRETS: Final = frozenset(
    {"ssl_password", "sasl_password", "sasl_oauthbearer_client_credentials_client_secret"}
)
_ENDPOINT: Final = "sasl_oauthbearer_token_endpoint_url"
_CLIENT_ID: Final = "sasl_oauthbearer_client_credentials_client_id"
_CLIENT_SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"


class InvalidSecurityOptionError(ValueError):
    """An option of TLS or SASL that is unknown, missing, or at odds with another one."""


class SecurityOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How connections are encrypted, and how each side proves who it is.

    Secrets are left out of its text. Files are read anew for each connection, so that
    certificates can be renewed in place.

    Raises:
        InvalidSecurityOptionError: on construction, for options that do not go together.
    """

    security_protocol: str = "PLAINTEXT"
    #: Instead of all that follows with ``ssl_``.
    ssl_context: ssl.SSLContext | None = None
    ssl_check_hostname: bool = True
    #: Whom to trust, in a PEM file or as PEM text; the system's authorities if neither is given.
    ssl_cafile: str | None = None
    ssl_cadata: str | None = None
    #: The client's own certificate, the chain after it, and its key (in the same file if None).
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = None
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = None
    #: Called for each authentication; see `partage.client.security.tokens`.
    sasl_oauth_token_provider: Callable[[], Any] | Any = None
    #: Or a token endpoint, asked with the client's credentials (KIP-768).
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_header_urlencode: bool = False
    #: If not empty, the only endpoints that are asked; one without TLS must stand here.
    sasl_oauthbearer_allowed_urls: tuple[str, ...] = ()
    #: Whom to trust at the endpoint, a PEM file; the system's authorities if None.
    sasl_oauthbearer_ssl_cafile: str | None = None

    def __post_init__(self) -> None:
        _check_protocol(self)
        _check_tls(self)
        _check_sasl(self)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether the client authenticates itself by SASL."""
        return self.security_protocol.startswith("SASL_")

    def __repr__(self) -> str:
        return f"SecurityOptions({', '.join(f'{n}={v!r}' for n, v in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, "***" if name in _SECRETS else getattr(self, name)) for name in _given(self)]


#: The names of all of them.
SECURITY_OPTION_NAMES: Final = frozenset((*SecurityOptions.__struct_fields__, *_ALIASES))


def parse_security_options(given: Mapping[str, Any]) -> SecurityOptions:
    """The options in ``given`` by their names; ``sasl_plain_username`` and the like are known.

    Raises:
        InvalidSecurityOptionError: one is unknown, given twice, or at odds with another one.
    """
    known = SecurityOptions.__struct_fields__
    taken: dict[str, Any] = {}
    for given_name, value in given.items():
        name = _ALIASES.get(given_name, given_name)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InvalidSecurityOptionError(f"{given_name} is not an option of TLS or SASL{hint}")
        if name in taken:
            raise InvalidSecurityOptionError(
                f"{given_name} and {name} are the same option; give one"
            )
        taken[name] = value
    return SecurityOptions(**taken)


def _given(options: SecurityOptions) -> list[str]:
    """The names of what is not as it is by default."""
    defaults = zip(SecurityOptions.__struct_fields__, _DEFAULTS, strict=True)
    return [name for name, default in defaults if getattr(options, name) != default]


_DEFAULTS: Final = tuple(
    field.default for field in msgspec.structs.fields(SecurityOptions)
)  # of all fields: each has one


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
    if options.ssl_certfile is None and (options.ssl_keyfile or options.ssl_password):
        raise InvalidSecurityOptionError("ssl_keyfile and ssl_password need ssl_certfile")


def _check_sasl(options: SecurityOptions) -> None:
    if not options.uses_sasl:
        return
    mechanism = options.sasl_mechanism
    if mechanism not in SASL_MECHANISMS:
        told = "missing" if mechanism is None else f"{mechanism!r}"
        raise InvalidSecurityOptionError(
            f"sasl_mechanism is {told}; it must be one of {', '.join(SASL_MECHANISMS)}"
        )
    if mechanism == "OAUTHBEARER":
        _check_oauth(options)
        return
    for name in ("sasl_username", "sasl_password"):
        value = getattr(options, name)
        if not value:
            raise InvalidSecurityOptionError(f"sasl_mechanism={mechanism} needs {name}")
        if "\0" in value:  # it separates the two in PLAIN (RFC 4616)
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
    """Only where the user wants it, and only over TLS unless they say so (CVE-2025-27817)."""
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
