"""The SASL mechanisms, each as a state machine without I/O.

A mechanism object is for one authentication. Its errors name the broker but never contain a secret.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from abc import ABC, abstractmethod
from hmac import compare_digest
from importlib.util import find_spec
from typing import Any, Final

from partage.client.daemon_thread import run_in_daemon_thread
from partage.client.security.errors import (
    AuthenticationFailedError,
    BrokerProofError,
    SecurityError,
    TokenRejectedError,
)
from partage.client.security.options import InvalidSecurityOptionError
from partage.client.security.tokens import Token, TokenSource, token_expiry_s
from partage.model.addresses import Address

#: Fewer iterations let an eavesdropper guess the password cheaply (RFC 7677 §4; also Kafka's
#: minimum).
ITERATIONS_MIN: Final = 4_096
#: More iterations would waste CPU time; no real configuration needs them
#: (https://nvd.nist.gov/vuln/detail/CVE-2026-10143).
ITERATIONS_MAX: Final = 1_000_000

_SAID_MAX: Final = 300


def check_scram_package() -> None:
    """Check that the package for SCRAM is installed.

    Raises:
        InvalidSecurityOptionError: It is not installed.
    """
    if find_spec("scramp") is None:
        raise InvalidSecurityOptionError(
            "SCRAM needs the package scramp: pip install 'partage[sasl]'"
        )


class Mechanism(ABC):
    """One authentication by one mechanism."""

    def __init__(self, address: Address, name: str) -> None:
        self.address = address
        self.name = name

    @abstractmethod
    async def initial_response(self) -> bytes:
        """Return the first message of the client."""

    @abstractmethod
    async def evaluate_challenge(self, said: bytes) -> bytes | None:
        """Return the response to a broker's message; None if the exchange is complete.

        Raises:
            SecurityError: The broker's message is invalid or rejects the client.
        """

    @abstractmethod
    def rejection_error(self, said: str) -> SecurityError:
        """Return the error for a rejection with the broker's message ``said``."""


class Plain(Mechanism):
    """PLAIN (RFC 4616): sends the password in cleartext.

    The authorization identity is always empty, so a broker uses the user name
    (https://nvd.nist.gov/vuln/detail/CVE-2017-12610).
    """

    def __init__(self, address: Address, username: str, password: str) -> None:
        super().__init__(address, "PLAIN")
        self._username = username
        self._password = password

    async def initial_response(self) -> bytes:
        return f"\0{self._username}\0{self._password}".encode()

    async def evaluate_challenge(self, said: bytes) -> None:
        return None

    def rejection_error(self, said: str) -> SecurityError:
        reason = _shown(said.replace(self._password, "***"))
        return AuthenticationFailedError(self.address, self.name, reason)


class Scram(Mechanism):
    """SCRAM (RFC 5802, RFC 7677): both sides prove that they know the password; it is not sent."""

    def __init__(self, address: Address, name: str, username: str, password: str) -> None:
        super().__init__(address, name)
        self._nonce = secrets.token_hex(24)
        self._scram = _client(name, username, password, self._nonce)
        self._is_proven_to_them = False

    async def initial_response(self) -> bytes:
        return str(self._scram.get_client_first()).encode()

    async def evaluate_challenge(self, said: bytes) -> bytes | None:
        from scramp import ScramException

        try:
            if self._is_proven_to_them:
                self._scram.set_server_final(said.decode())
                return None
            self._check_first(said.decode())
            self._scram.set_server_first(said.decode())
            # The expensive step: thousands of hashes.
            final = str(await run_in_daemon_thread(self._scram.get_client_final))
        except (ScramException, ValueError) as error:
            raise BrokerProofError(self.address, _shown(str(error))) from None
        self._is_proven_to_them = True
        return final.encode()

    def _check_first(self, said: str) -> None:
        """Check the nonce and the number of iterations before computing anything."""
        parts = dict(part.partition("=")[::2] for part in said.split(","))
        nonce = parts.get("r", "").encode()
        ours = self._nonce.encode()
        if not compare_digest(nonce[: len(ours)], ours) or len(nonce) == len(ours):
            raise ValueError("it answered with another nonce")
        count = parts.get("i", "")
        iterations = int(count) if re.fullmatch("[0-9]{1,9}", count) else 0
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ValueError(
                f"it asks for {count[:20]!r} iterations; "
                f"{ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed"
            )

    def rejection_error(self, said: str) -> SecurityError:
        return AuthenticationFailedError(self.address, self.name, _shown(said))


class OAuthBearer(Mechanism):
    """OAUTHBEARER (RFC 7628): sends a token that an authorization server signed."""

    def __init__(self, address: Address, tokens: TokenSource) -> None:
        super().__init__(address, "OAUTHBEARER")
        self._tokens = tokens
        self._token = Token("")
        self._status = ""

    async def initial_response(self) -> bytes:
        self._token = await self._tokens.get_token(self.address)
        pairs = [("auth", f"Bearer {self._token.value}"), *self._token.extensions.items()]
        return ("n,,\x01" + "".join(f"{key}={value}\x01" for key, value in pairs) + "\x01").encode()

    async def evaluate_challenge(self, said: bytes) -> bytes | None:
        if not said:
            return None
        # The broker rejected the token and sent a reason. It ends the exchange after our
        # acknowledgement.
        try:
            self._status = str(json.loads(said)["status"])
        except (ValueError, KeyError, TypeError):
            self._status = "refused"
        return b"\x01"

    def rejection_error(self, said: str) -> SecurityError:
        self._tokens.invalidate(self._token)
        reason = _shown((self._status or said).replace(self._token.value, "***"))
        return TokenRejectedError(self.address, self.name, reason, _way_out(self._token.value))


def _way_out(token: str) -> str:
    expires_at = token_expiry_s(token)
    if expires_at is not None and expires_at <= time.time():
        ago = time.time() - expires_at
        return f"the token expired {ago:.0f} s ago; let the token provider renew it"
    return "check the token's issuer, audience and scope, and what the broker asks for"


def _shown(said: str) -> str:
    """Return a broker's message in printable form."""
    line = "".join(char if char.isprintable() else " " for char in said).strip()
    return line[:_SAID_MAX] or "no reason given"


def _client(mechanism: str, username: str, password: str, nonce: str) -> Any:
    """Create scramp's client, with names and passwords byte by byte, like Kafka.

    RFC 5802 requires SASLprep for both, which changes or rejects some; Kafka's brokers and clients
    do not apply it.
    """
    from scramp import ScramClient
    from scramp.core import Password, Username

    class AsItIs(Username, Password):  # type: ignore[misc]  # scramp has no types
        def __init__(self, text: str) -> None:
            self.username = self.password = text

    client = ScramClient([mechanism], "user", "password", c_nonce=nonce)
    client.username, client.password = AsItIs(username), AsItIs(password)
    return client
