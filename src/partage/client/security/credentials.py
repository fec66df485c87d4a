"""The credentials that all connections of a cluster share."""

from __future__ import annotations

import functools
import logging
import ssl
from typing import Final

from partage.client.daemon_thread import run_in_daemon_thread
from partage.client.security.mechanisms import (
    Mechanism,
    OAuthBearer,
    Plain,
    Scram,
    check_scram_package,
)
from partage.client.security.options import SCRAM_MECHANISMS, SecurityOptions
from partage.client.security.tls import make_context
from partage.client.security.tokens import TokenSource
from partage.model.addresses import Address

log = logging.getLogger(__name__)

#: Mechanisms that send the secret in cleartext.
_CLEARTEXT_MECHANISMS: Final = ("PLAIN", "OAUTHBEARER")


@functools.cache
def warn_secret_unencrypted(mechanism: str) -> None:
    """Log a warning, once for each mechanism in a process."""
    log.warning("sasl_mechanism=%s without TLS sends the secret unencrypted", mechanism)


def check_usable(options: SecurityOptions) -> None:
    """Check that this machine has the files and packages that the options need.

    Raises:
        InvalidSecurityOptionError: A file is missing or invalid, or a package is not installed.
    """
    make_context(options)
    if options.sasl_mechanism in SCRAM_MECHANISMS:
        check_scram_package()


class Credentials:
    """The trust and the identity of a client; belongs to the event loop that first uses it.

    Raises:
        InvalidSecurityOptionError: A file is missing or invalid, or a package is not installed.
    """

    def __init__(self, options: SecurityOptions) -> None:
        self.options = options
        self._tokens = TokenSource(options)
        self._doubted: set[Address] = set()
        check_usable(options)
        if options.sasl_mechanism in _CLEARTEXT_MECHANISMS and not options.uses_tls:
            warn_secret_unencrypted(options.sasl_mechanism)

    @property
    def has_certificate(self) -> bool:
        """True if the client may present a certificate."""
        options = self.options
        own = (options.ssl_certfile, options.ssl_certdata, options.ssl_context)
        return any(each is not None for each in own)

    def is_first_probe(self, address: Address) -> bool:
        """True if this is the first probe of a port that closed a connection."""
        is_first = address not in self._doubted
        self._doubted.add(address)
        return is_first

    async def context(self) -> ssl.SSLContext | None:
        """Return the TLS context of a connection, None without TLS.

        Raises:
            InvalidSecurityOptionError: A file is missing or invalid.
        """
        if not self.options.uses_tls:
            return None
        return await run_in_daemon_thread(lambda: make_context(self.options))

    def mechanism(self, address: Address) -> Mechanism | None:
        """Return an authentication with a broker, None without SASL."""
        options = self.options
        username, password = options.sasl_username or "", options.sasl_password or ""
        match options.sasl_mechanism:
            case None:
                return None
            case "PLAIN":
                return Plain(address, username, password)
            case "OAUTHBEARER":
                return OAuthBearer(address, self._tokens)
            case scram:
                return Scram(address, scram, username, password)
