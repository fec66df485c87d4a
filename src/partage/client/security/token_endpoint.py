"""A request to a token endpoint: the client-credentials grant (RFC 6749 §4.4, KIP-768)."""

from __future__ import annotations

import base64
import ssl
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)

import msgspec

from partage.client.security.options import SecurityOptions

# Kafka's sasl.login.connect.timeout.ms and sasl.login.read.timeout.ms have no default
_TIMEOUT_S: Final = 10
_RESPONSE_BYTES_MAX: Final = 256 * 1024
#: HTTP statuses after which a retry may succeed.
_RETRIABLE_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class TokenEndpointError(Exception):
    """The endpoint granted no token."""

    def __init__(self, why: str, *, is_retriable: bool = False) -> None:
        super().__init__(why)
        self.is_retriable = is_retriable


class TokenResponse(msgspec.Struct, frozen=True):
    """The response of a token endpoint."""

    access_token: str
    expires_in: float | None = None

    def __repr__(self) -> str:
        return f"Granted(***, expires_in={self.expires_in})"


class _ErrorResponse(msgspec.Struct, frozen=True):
    error: str


class _NoRedirects(HTTPRedirectHandler):
    """Forbids redirects: the secret goes only to the configured address."""

    def redirect_request(self, *request: Any) -> None:
        return None


def request_token(options: SecurityOptions) -> TokenResponse:
    """Request a token; blocking. Raises `TokenEndpointError`."""
    url = options.sasl_oauthbearer_token_endpoint_url or ""
    trusted = _context(options)
    opener = build_opener(ProxyHandler(), HTTPSHandler(context=trusted), _NoRedirects())
    try:
        with opener.open(_request(url, options), timeout=_TIMEOUT_S) as answer:
            body = answer.read(_RESPONSE_BYTES_MAX + 1)
    except HTTPError as error:
        with error:
            why = f"{url} answered {error.code}{_reason(error)}"
        is_busy = error.code in _RETRIABLE_STATUSES
        raise TokenEndpointError(why, is_retriable=is_busy) from None
    except (OSError, HTTPException) as error:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise TokenEndpointError(
                f"the certificate of {url} is not trusted ({cause.verify_message}); "
                "set sasl_oauthbearer_ssl_cafile to the authorities to trust"
            ) from error
        raise TokenEndpointError(f"{url} cannot be reached ({cause})", is_retriable=True) from error
    if len(body) > _RESPONSE_BYTES_MAX:
        raise TokenEndpointError(f"{url} sent a response that is too large for a token")
    try:
        return msgspec.json.decode(body, type=TokenResponse)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Without the cause: it may quote the response.
        raise TokenEndpointError(f"{url} answered without an access_token in JSON") from None


def _context(options: SecurityOptions) -> ssl.SSLContext:
    cafile = options.sasl_oauthbearer_ssl_cafile
    try:
        context = ssl.create_default_context(cafile=cafile)
    except OSError as error:
        why = f"sasl_oauthbearer_ssl_cafile={cafile} cannot be read ({error.strerror or error})"
        raise TokenEndpointError(why) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _request(url: str, options: SecurityOptions) -> Request:
    user = options.sasl_oauthbearer_client_credentials_client_id or ""
    secret = options.sasl_oauthbearer_client_credentials_client_secret or ""
    # Required by RFC 6749; Kafka has an option for it
    if options.sasl_oauthbearer_header_urlencode:
        user, secret = quote_plus(user), quote_plus(secret)
    form = {"grant_type": "client_credentials"}
    if options.sasl_oauthbearer_scope is not None:
        form["scope"] = options.sasl_oauthbearer_scope
    return Request(
        url,
        data=urlencode(form).encode(),
        headers={
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )


def _reason(error: HTTPError) -> str:
    """Return the error code of RFC 6749 §5.2, such as ``invalid_client``, in parentheses, or ""."""
    try:
        code = msgspec.json.decode(error.read(_RESPONSE_BYTES_MAX), type=_ErrorResponse).error
    except (msgspec.DecodeError, OSError, HTTPException):
        return ""
    is_one = len(code) < 50 and code.replace("_", "").isalnum()
    return f" ({code})" if is_one else ""
