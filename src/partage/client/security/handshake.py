"""SASL over a connection: agree on the mechanism, then let it speak (KIP-43, KIP-152)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from partage.client.addresses import Address
from partage.client.errors import BrokerResponseError, UnsupportedApiError, error_name
from partage.client.security.errors import (
    AuthenticationFailedError,
    UnsupportedMechanismError,
    WrongSecurityProtocolError,
)
from partage.client.security.mechanisms import Mechanism
from partage.model.errors import ErrorCode
from partage.wire.api import Api, Req, Res
from partage.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from partage.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest

#: No mechanism has more steps.
_STEPS_MAX: Final = 4


class SendRequest(Protocol):
    """Sends a request and waits for its answer."""

    async def __call__(self, api: Api[Req, Res], message: Req) -> Res:
        """The answer. Raises `ClientError`."""


async def authenticate(ask: SendRequest, mechanism: Mechanism) -> int:
    """Prove who we are; how long that holds in milliseconds, 0 for as long as the connection.

    Raises:
        SecurityError: the broker refused, or did not prove itself.
        ClientError: the exchange broke off.
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
    """By what a broker wants us to authenticate; None if it does not."""
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
