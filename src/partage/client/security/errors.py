"""Errors of TLS and authentication."""

from __future__ import annotations

from collections.abc import Sequence

from partage.client.errors import ClientError
from partage.model.addresses import Address


class SecurityError(ClientError):
    """The base class of security errors. They are not retriable: a retry would fail alike."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"{address}: {why}")
        self.address = address


class WrongSecurityProtocolError(SecurityError):
    """One side uses TLS or SASL, and the other does not."""


class UntrustedCertificateError(SecurityError):
    """The broker's certificate is invalid, or no trusted authority signed it."""

    def __init__(self, address: Address, why: str, *, is_out_of_date: bool = False) -> None:
        way_out = (
            "Renew the certificate, or correct this machine's clock"
            if is_out_of_date
            else "Set ssl_cafile to a file with the certificates of the authorities to trust"
        )
        super().__init__(address, f"its certificate is not trusted: {why}. {way_out}")


class CertificateHostMismatchError(SecurityError):
    """The broker's certificate is valid, but for another host."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(
            address,
            f"its certificate is for another host: {why}. Connect to a name in the "
            "certificate, and let the broker advertise it; "
            "ssl_check_hostname=False skips this check",
        )


class ClientCertificateRejectedError(SecurityError):
    """The broker requires a client certificate, and got none or one that it does not trust."""

    def __init__(self, address: Address, why: str, *, has_one: bool) -> None:
        way_out = (
            "does it trust the authority that signed ssl_certfile, and is that still valid?"
            if has_one
            else "it requires one: set ssl_certfile and ssl_keyfile"
        )
        super().__init__(address, f"it refused the client's certificate ({why}); {way_out}")


class TlsNegotiationError(SecurityError):
    """The two sides have no TLS version or cipher in common."""

    def __init__(self, address: Address, why: str, *, has_certificate: bool) -> None:
        hint = "" if has_certificate else "; if it asks for a certificate, set ssl_certfile"
        super().__init__(
            address, f"TLS negotiation failed ({why}); this client supports TLS 1.2 and 1.3{hint}"
        )


class AuthenticationRequiredError(SecurityError):
    """The broker requires authentication, and the client is not configured for it."""

    def __init__(self, address: Address, mechanisms: Sequence[str], *, uses_tls: bool) -> None:
        protocol = "SASL_SSL" if uses_tls else "SASL_PLAINTEXT"
        super().__init__(
            address,
            f"it requires authentication by {_listed(mechanisms)}; "
            f"set security_protocol={protocol} and sasl_mechanism",
        )
        self.mechanisms = tuple(mechanisms)


class UnsupportedMechanismError(SecurityError):
    """The broker does not support the configured SASL mechanism."""

    def __init__(self, address: Address, mechanism: str, theirs: Sequence[str]) -> None:
        super().__init__(
            address,
            f"it does not support SASL mechanism {mechanism}, only {_listed(theirs)}; "
            "change sasl_mechanism",
        )
        self.mechanisms = tuple(theirs)


class AuthenticationFailedError(SecurityError):
    """The broker does not know the user, or the password is wrong."""

    def __init__(
        self,
        address: Address,
        mechanism: str,
        said: str,
        way_out: str = "check sasl_username and sasl_password",
    ) -> None:
        super().__init__(address, f"authentication by {mechanism} failed: {said}; {way_out}")


class TokenRejectedError(AuthenticationFailedError):
    """The broker rejected the token: it expired, or its audience or signature is wrong."""


class BrokerProofError(SecurityError):
    """The broker did not prove that it knows the password, as SCRAM requires. It may be an
    attacker.
    """

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(
            address,
            f"the broker did not prove that it knows the password: {why}; "
            "check that this is your broker",
        )


class TokenUnavailableError(SecurityError):
    """No OAuth token is available; retriable if the endpoint may answer later."""

    def __init__(self, address: Address, why: str, *, is_retriable: bool = False) -> None:
        super().__init__(address, f"no OAuth token is available: {why}")
        self.is_retriable = is_retriable


def _listed(mechanisms: Sequence[str]) -> str:
    return " or ".join(mechanisms) or "no mechanism at all"
