"""SaslHandshake (API key 17): selects the SASL mechanism.

After v0 the client sends raw tokens on the connection, after v1 SaslAuthenticate requests
(KIP-152). Not flexible in any version.
"""

from __future__ import annotations

from partage.wire.api import Api
from partage.wire.types import Array, Int16, Message, String


class SaslHandshakeRequest(Message):
    """The mechanism that the client selects."""

    mechanism: String


class SaslHandshakeResponse(Message):
    """The mechanisms that the broker supports."""

    error_code: Int16
    mechanisms: Array[String]


SASL_HANDSHAKE = Api(
    17, "SaslHandshake", SaslHandshakeRequest, SaslHandshakeResponse, versions=(0, 1), flexible=None
)
