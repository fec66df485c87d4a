"""SaslHandshake (17): agrees on how the client proves who it is.

v0 is followed by bare tokens on the connection, v1 by SaslAuthenticate requests (KIP-152). Never
flexible.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Message, String


class SaslHandshakeRequest(Message):
    """The mechanism that the client wants."""

    mechanism: String


class SaslHandshakeResponse(Message):
    """The mechanisms that the broker has."""

    error_code: Int16
    mechanisms: Array[String]


SASL_HANDSHAKE = Api(
    17, "SaslHandshake", SaslHandshakeRequest, SaslHandshakeResponse, versions=(0, 1), flexible=None
)
