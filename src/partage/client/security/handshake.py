"""The SASL exchange on a connection: choose the mechanism, then run its steps (KIP-43, KIP-152)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from partage.client.errors import BrokerResponseError, UnsupportedApiError, error_name
from partage.client.security.errors import (
    AuthenticationFailedError,
    UnsupportedMechanismError,
    WrongSecurityProtocolError,
)
from partage.client.security.mechanisms import Mechanism
from partage.model.addresses import Address
from partage.model.errors import ErrorCode
from partage.wire.api import Api, Req, Res
from partage.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from partage.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest

#: The largest number of steps of a mechanism.
_STEPS_MAX: Final = 4


class SendRequest(Protocol):
    """A function that sends a request and returns its response."""

    async def __call__(self, api: Api[Req, Res], message: Req) -> Res:
        """Send the request and return its response. Raises `ClientError`."""


async def authenticate(ask: SendRequest, mechanism: Mechanism) -> int:
    """Authenticate the client.

    Returns:
        The session lifetime in ms; 0 if it lasts as long as the connection.

    Raises:
        SecurityError: The broker rejected the client, or did not prove its identity.
        ClientError: The exchange failed.
    """
    address = mechanism.address
    try:
        greeting = await ask(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism.name))
    except UnsupportedApiError:
        raise _sasl_not_enabled_error(address) from None
    if greeting.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise UnsupportedMechanismError(address, mechanism.name, greeting.mechanisms)
    if greeting.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise _sasl_not_enabled_error(address)
    if greeting.error_code:
        raise BrokerResponseError(greeting.error_code, "SaslHandshake")
    said = await mechanism.initial_response()
    for _ in range(_STEPS_MAX):
        answer = await ask(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=said))
        if answer.error_code:
            raise mechanism.rejection_error(answer.error_message or error_name(answer.error_code))
        more = await mechanism.evaluate_challenge(bytes(answer.auth_bytes))
        if more is None:
            return max(answer.session_lifetime_ms, 0)
        said = more
    raise AuthenticationFailedError(address, mechanism.name, f"no result after {_STEPS_MAX} steps")


async def required_mechanisms(ask: SendRequest) -> Sequence[str] | None:
    """Return the SASL mechanisms that a broker requires; None if it requires no SASL."""
    try:
        greeting = await ask(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=""))
    except UnsupportedApiError:
        return None
    is_wanted = greeting.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return greeting.mechanisms if is_wanted else None


def _sasl_not_enabled_error(address: Address) -> WrongSecurityProtocolError:
    return WrongSecurityProtocolError(
        address,
        "this port does not authenticate by SASL; connect to the broker's SASL listener, or set "
        "security_protocol to PLAINTEXT or SSL",
    )
