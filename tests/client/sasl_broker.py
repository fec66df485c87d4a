"""The broker side of SASL, as a script for `scripted_broker.ScriptedBroker`."""

from __future__ import annotations

import base64
import json
from typing import Any

from scramp import ScramException, ScramMechanism

from partage.wire.apis.sasl_authenticate import SaslAuthenticateResponse
from partage.wire.apis.sasl_handshake import SaslHandshakeResponse

from .scripted_broker import CLOSE, ScriptedRequest

ILLEGAL_SASL_STATE, UNSUPPORTED_MECHANISM, AUTHENTICATION_FAILED = 34, 33, 58


class SaslScript:
    """Requires authentication, on one connection at a time; closes connections without it.

    ``passwords`` are by user, ``tokens`` are the valid ones, ``lifetime_ms`` is the session
    lifetime. Every exchange begins with a handshake.
    """

    def __init__(self, *mechanisms: str, passwords: dict[str, str] | None = None) -> None:
        self.mechanisms = list(mechanisms)
        self.passwords = passwords or {}
        self.tokens: set[str] = set()
        self.lifetime_ms = 0
        self.iterations = 4096
        self.said: list[bytes] = []
        self.succeeded = 0
        self._mechanism: str | None = None
        self._is_through = False
        self._scram: Any = None
        self._refused = False

    def __call__(self, asked: ScriptedRequest) -> Any:
        match asked.api.name:
            case "ApiVersions":
                self._is_through = False
                return None
            case "SaslHandshake":
                return self._handshake(asked.message.mechanism)
            case "SaslAuthenticate":
                self.said.append(bytes(asked.message.auth_bytes))
                return self.step(self.said[-1])
            case _:
                return None if self._is_through else CLOSE

    def _handshake(self, mechanism: str) -> SaslHandshakeResponse:
        self._mechanism, self._scram, self._refused = mechanism, None, False
        self._is_through = False
        error = 0 if mechanism in self.mechanisms else UNSUPPORTED_MECHANISM
        return SaslHandshakeResponse(error_code=error, mechanisms=self.mechanisms)

    def step(self, said: bytes) -> SaslAuthenticateResponse:
        """Return the response to one SASL message."""
        match self._mechanism:
            case "PLAIN":
                authzid, user, password = said.decode().split("\0")
                return self.outcome(authzid == "" and self.passwords.get(user) == password)
            case "OAUTHBEARER":
                return self._oauth(said)
            case _:
                return self._scram_step(said.decode())

    def outcome(self, is_right: bool, said: bytes = b"") -> SaslAuthenticateResponse:
        if not is_right:
            why = "Authentication failed: Invalid username or password"
            return SaslAuthenticateResponse(
                error_code=AUTHENTICATION_FAILED, error_message=why, auth_bytes=b""
            )
        self._is_through = True
        self.succeeded += 1
        return SaslAuthenticateResponse(
            error_code=0, auth_bytes=said, session_lifetime_ms=self.lifetime_ms
        )

    def _oauth(self, said: bytes) -> SaslAuthenticateResponse:
        if self._refused:
            return self.outcome(False)
        token = said.split(b"auth=Bearer ")[1].split(b"\x01")[0].decode()
        if token in self.tokens:
            return self.outcome(True)
        self._refused = True
        status = json.dumps({"status": "invalid_token"}).encode()
        return SaslAuthenticateResponse(error_code=0, auth_bytes=status)

    def _scram_step(self, said: str) -> SaslAuthenticateResponse:
        mechanism = ScramMechanism(self._mechanism)
        try:
            if self._scram is None:

                def known(user: str) -> Any:
                    return mechanism.make_auth_info(self.passwords[user], self.iterations)

                self._scram = mechanism.make_server(known)
                self._scram.set_client_first(said)
                first = self._scram.get_server_first().encode()
                return SaslAuthenticateResponse(error_code=0, auth_bytes=first)
            self._scram.set_client_final(said)
            return self.outcome(True, self._scram.get_server_final().encode())
        except ScramException:
            return self.outcome(False)


def unsigned_jwt(**claims: Any) -> str:
    """Return an unsigned token with these claims."""

    def part(said: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}."
