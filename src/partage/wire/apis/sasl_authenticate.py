"""SaslAuthenticate (API key 36): one step of a SASL exchange (KIP-152).

v1 session lifetime (KIP-368); v2 flexible.
"""

from __future__ import annotations

from typing import Annotated

from partage.wire.api import Api
from partage.wire.types import Bytes, Int16, Int64, Message, NullableString, Since


class SaslAuthenticateRequest(Message):
    """The client's token, in the format of the mechanism."""

    auth_bytes: Bytes

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest(<{len(self.auth_bytes)} bytes>)"  # may contain a password


class SaslAuthenticateResponse(Message):
    """The server's token. The client must re-authenticate within a lifetime above 0."""

    error_code: Int16
    error_message: NullableString = None
    auth_bytes: Bytes
    session_lifetime_ms: Annotated[Int64, Since(1)] = 0


SASL_AUTHENTICATE = Api(
    36,
    "SaslAuthenticate",
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    versions=(0, 2),
    flexible=2,
)
