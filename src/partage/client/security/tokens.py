"""OAuth tokens: from a function of the user's, or from a token endpoint."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from partage.client.addresses import Address
from partage.client.security.daemon_thread import run_in_daemon_thread
from partage.client.security.errors import TokenUnavailableError
from partage.client.security.options import SecurityOptions

if TYPE_CHECKING:
    from partage.client.security.token_endpoint import TokenResponse

#: Used until this share of its life has passed, as sasl.login.refresh.window.factor.
_REFRESH_AT: Final = 0.8
#: What a token may consist of (RFC 6750 §2.1), and so never what separates it from the rest.
_TOKEN: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")
#: And an extension (RFC 7628 §3.1).
_NAME: Final = re.compile("[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")


class Token(msgspec.Struct, frozen=True):
    """A token, and SASL extensions to send with it (KIP-342); its text is left out of its own."""

    value: str
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return "Token(***)"


class TokenSource:
    """The tokens that all connections of a cluster authenticate with.

    ``sasl_oauth_token_provider`` is a function, asynchronous or not, that returns a token as text
    or as `Token`; or an object with such a method ``token`` and perhaps ``extensions``, which
    returns a mapping. It is called for each authentication. A token from an endpoint is kept
    until most of its life has passed.
    """

    def __init__(self, options: SecurityOptions) -> None:
        self._options = options
        self._turn = asyncio.Lock()
        self._cached: Token | None = None
        self._cached_until = 0.0

    async def get_token(self, address: Address) -> Token:
        """A token to authenticate at this broker with. Raises `TokenUnavailableError`."""
        if self._options.sasl_oauth_token_provider is None:
            token = await self._from_endpoint(address)
        else:
            token = await self._provided(address, self._options.sasl_oauth_token_provider)
        if not _TOKEN.fullmatch(token.value):
            raise TokenUnavailableError(
                address, "the token has characters that are not allowed (RFC 6750)"
            )
        for name, value in token.extensions.items():
            if name == "auth" or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise TokenUnavailableError(address, f"{name!r} cannot be sent as a SASL extension")
        return token

    def invalidate(self, token: Token) -> None:
        """A broker did not accept it: ask for another one the next time."""
        if token is self._cached:
            self._cached = None

    async def _provided(self, address: Address, provider: Any) -> Token:
        try:
            token = await _called(getattr(provider, "token", provider))
            more = getattr(provider, "extensions", None)
            extensions = await _called(more) if more is not None else {}
        except Exception as error:
            why = f"sasl_oauth_token_provider raised {type(error).__name__}"
            raise TokenUnavailableError(address, why) from error
        if isinstance(token, Token):
            return token
        if not isinstance(token, str):
            why = f"sasl_oauth_token_provider returned {type(token).__name__}, not text"
            raise TokenUnavailableError(address, why)
        return Token(token, dict(extensions))

    async def _from_endpoint(self, address: Address) -> Token:
        async with self._turn:  # one request for all connections that open at once
            now = asyncio.get_running_loop().time()
            if self._cached is None or now >= self._cached_until:
                granted = await self._granted(address)
                self._cached = Token(granted.access_token)
                self._cached_until = now + _REFRESH_AT * _lifetime_s(granted)
            return self._cached

    async def _granted(self, address: Address) -> TokenResponse:
        # Not before it is needed: Python's HTTP client takes a while to import.
        from partage.client.security.token_endpoint import TokenEndpointError, request_token

        try:
            return await run_in_daemon_thread(lambda: request_token(self._options))
        except TokenEndpointError as error:
            raise TokenUnavailableError(
                address, str(error), is_retriable=error.is_retriable
            ) from error.__cause__


def token_expiry_s(token: str) -> float | None:
    """When a token expires by its own words, in seconds since 1970; None if it does not say."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None  # not every token is a JWT


def _lifetime_s(granted: TokenResponse) -> float:
    if granted.expires_in is not None:
        return granted.expires_in
    expires_at = token_expiry_s(granted.access_token)
    return 0.0 if expires_at is None else expires_at - time.time()


async def _called(function: Callable[[], Any | Awaitable[Any]]) -> Any:
    """What the function returns, wherever it may be called."""
    if inspect.iscoroutinefunction(function):
        return await function()
    result = await run_in_daemon_thread(function)
    return await result if inspect.isawaitable(result) else result
