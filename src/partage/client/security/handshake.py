"""SASL over a connection: agree on the mechanism, then let it speak (KIP-43, KIP-152)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from partage.client.addresses import Address
from partage.client.errors import RequestRefused, UnsupportedApi, error_name
from partage.client.security.errors import (
    AuthenticationFailed,
    UnknownMechanism,
    WrongSecurityProtocol,
)
from partage.client.security.mechanisms import Mechanism
from partage.model.errors import ErrorCode
from partage.wire.api import Api, Req, Res
from partage.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from partage.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest

#: No mechanism has more steps.
_STEPS_MAX: Final = 4


class Ask(Protocol):
    """Sends a request and waits for its answer."""

    async def __call__(self, api: Api[Req, Res], message: Req) -> Res:
        """The answer. Raises `ClientError`."""


async def authenticate(ask: Ask, mechanism: Mechanism) -> int:
    """Prove who we are; how long that holds in milliseconds, 0 for as long as the connection.

    Raises:
        SecurityError: the broker refused, or did not prove itself.
        ClientError: the exchange broke off.
    """
    address = mechanism.address
    try:
        greeting = await ask(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism.name))
    except UnsupportedApi:
        raise _not_asked_for(address) from None
    if greeting.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise UnknownMechanism(address, mechanism.name, greeting.mechanisms)
    if greeting.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise _not_asked_for(address)
    if greeting.error_code:
        raise RequestRefused(greeting.error_code, "SaslHandshake")
    said = await mechanism.first()
    for _ in range(_STEPS_MAX):
        answer = await ask(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=said))
        if answer.error_code:
            raise mechanism.refusal(answer.error_message or error_name(answer.error_code))
        more = await mechanism.answer(bytes(answer.auth_bytes))
        if more is None:
            return max(answer.session_lifetime_ms, 0)
        said = more
    raise AuthenticationFailed(address, mechanism.name, f"no result after {_STEPS_MAX} steps")


async def mechanisms_asked_for(ask: Ask) -> Sequence[str] | None:
    """By what a broker wants us to authenticate; None if it does not."""
    try:
        greeting = await ask(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=""))
    except UnsupportedApi:
        return None
    is_wanted = greeting.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return greeting.mechanisms if is_wanted else None


def _not_asked_for(address: Address) -> WrongSecurityProtocol:
    return WrongSecurityProtocol(
        address,
        "this port does not authenticate by SASL; connect to the broker's SASL listener, or set "
        "security_protocol to PLAINTEXT or SSL",
    )
