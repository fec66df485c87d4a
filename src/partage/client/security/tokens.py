"""OAuth tokens, from a user's function or from a token endpoint."""

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

from partage.client.daemon_thread import run_in_daemon_thread
from partage.client.security.errors import TokenUnavailableError
from partage.client.security.options import SecurityOptions
from partage.model.addresses import Address

if TYPE_CHECKING:
    from partage.client.security.token_endpoint import TokenResponse

#: The part of its lifetime for which a token is used, as sasl.login.refresh.window.factor.
_REFRESH_AT: Final = 0.8
#: The characters of a token (RFC 6750 §2.1); they include no separator of the SASL message.
_TOKEN: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")
#: The name and value of an extension (RFC 7628 §3.1).
_NAME: Final = re.compile("[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")


class Token(msgspec.Struct, frozen=True):
    """A token, and the SASL extensions to send with it (KIP-342). Its repr omits the token."""

    value: str
    extensions: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return "Token(***)"


class TokenSource:
    """The source of tokens for all connections of a cluster.

    ``sasl_oauth_token_provider`` is a function, synchronous or not, that returns a token as text or
    as `Token`. Or it is an object with such a method ``token``, and optionally ``extensions``,
    which returns a mapping. It is called for each authentication. A token from an endpoint is
    cached for most of its lifetime.
    """

    def __init__(self, options: SecurityOptions) -> None:
        self._options = options
        self._turn = asyncio.Lock()
        self._cached: Token | None = None
        self._cached_until = 0.0

    async def get_token(self, address: Address) -> Token:
        """Return a token to authenticate with a broker. Raises `TokenUnavailableError`."""
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
        """Drop a token that a broker rejected, so that the next call requests another one."""
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
        async with self._turn:  # One request for all connections that open at the same time
            now = asyncio.get_running_loop().time()
            if self._cached is None or now >= self._cached_until:
                granted = await self._granted(address)
                self._cached = Token(granted.access_token)
                self._cached_until = now + _REFRESH_AT * _lifetime_s(granted)
            return self._cached

    async def _granted(self, address: Address) -> TokenResponse:
        # Import on demand: Python's HTTP client takes a while to import.
        from partage.client.security.token_endpoint import TokenEndpointError, request_token

        try:
            return await run_in_daemon_thread(lambda: request_token(self._options))
        except TokenEndpointError as error:
            raise TokenUnavailableError(
                address, str(error), is_retriable=error.is_retriable
            ) from error.__cause__


def token_expiry_s(token: str) -> float | None:
    """Return the expiry of a token in seconds since 1970; None if it has none."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None  # Not every token is a JWT


def _lifetime_s(granted: TokenResponse) -> float:
    if granted.expires_in is not None:
        return granted.expires_in
    expires_at = token_expiry_s(granted.access_token)
    return 0.0 if expires_at is None else expires_at - time.time()


async def _called(function: Callable[[], Any | Awaitable[Any]]) -> Any:
    """Call the function, on the loop or in a thread, and return its result."""
    if inspect.iscoroutinefunction(function):
        return await function()
    result = await run_in_daemon_thread(function)
    return await result if inspect.isawaitable(result) else result
