"""What can go wrong when the two sides prove who they are; none of it passes by itself."""

from __future__ import annotations

from collections.abc import Sequence

from partage.client.addresses import Address
from partage.client.errors import ClientError


class SecurityError(ClientError):
    """The root of them. Not tried again: another attempt would end the same way."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(f"{address}: {why}")
        self.address = address


class WrongSecurityProtocolError(SecurityError):
    """One side speaks TLS, or asks for SASL, and the other does not."""


class UntrustedCertificateError(SecurityError):
    """The broker's certificate is not valid, or was signed by nobody whom we trust."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(
            address,
            f"its certificate is not trusted: {why}. Set ssl_cafile to a file with the "
            "certificates of the authorities to trust",
        )


class CertificateHostMismatchError(SecurityError):
    """The broker's certificate is sound but names another host."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(
            address,
            f"its certificate is for another host: {why}. Connect to a host name in the "
            "certificate, and let the broker advertise it; ssl_check_hostname=False skips this check",
        )


class ClientCertificateRejectedError(SecurityError):
    """The broker asks for a certificate of the client's, and got none or one it does not trust."""

    def __init__(self, address: Address, why: str, *, has_one: bool) -> None:
        way_out = (
            "does it trust the authority that signed ssl_certfile, and is that still valid?"
            if has_one
            else "it requires one: set ssl_certfile and ssl_keyfile"
        )
        super().__init__(address, f"it refused the client's certificate ({why}); {way_out}")


class TlsNegotiationError(SecurityError):
    """The two sides do not agree on a version or a cipher of TLS."""

    def __init__(self, address: Address, why: str, *, has_certificate: bool) -> None:
        hint = "" if has_certificate else "; if it asks for a certificate, set ssl_certfile"
        super().__init__(
            address, f"TLS negotiation failed ({why}); this client supports TLS 1.2 and 1.3{hint}"
        )


class AuthenticationRequiredError(SecurityError):
    """The broker asks clients who they are, and we were told not to say."""

    def __init__(self, address: Address, mechanisms: Sequence[str], *, uses_tls: bool) -> None:
        protocol = "SASL_SSL" if uses_tls else "SASL_PLAINTEXT"
        super().__init__(
            address,
            f"it requires authentication by {_listed(mechanisms)}; "
            f"set security_protocol={protocol} and sasl_mechanism",
        )
        self.mechanisms = tuple(mechanisms)


class UnsupportedMechanismError(SecurityError):
    """The broker does not have the SASL mechanism that we were told to use."""

    def __init__(self, address: Address, mechanism: str, theirs: Sequence[str]) -> None:
        super().__init__(
            address,
            f"it does not support SASL mechanism {mechanism}, only {_listed(theirs)}; "
            "change sasl_mechanism",
        )
        self.mechanisms = tuple(theirs)


class AuthenticationFailedError(SecurityError):
    """The broker does not know the user, or not by this password."""

    def __init__(
        self,
        address: Address,
        mechanism: str,
        said: str,
        way_out: str = "check sasl_username and sasl_password",
    ) -> None:
        super().__init__(address, f"authentication by {mechanism} failed: {said}; {way_out}")


class TokenRejectedError(AuthenticationFailedError):
    """The broker does not accept our token: expired, for somebody else, or wrongly signed."""


class BrokerProofError(SecurityError):
    """In SCRAM the broker proves itself too, and this one did not; somebody may stand between."""

    def __init__(self, address: Address, why: str) -> None:
        super().__init__(
            address,
            f"the broker did not prove that it knows the password: {why}; check that this is your broker",
        )


class TokenUnavailableError(SecurityError):
    """No OAuth token could be had; tried again if the endpoint may answer a moment later."""

    def __init__(self, address: Address, why: str, *, is_retriable: bool = False) -> None:
        super().__init__(address, f"no OAuth token is available: {why}")
        self.is_retriable = is_retriable


def _listed(mechanisms: Sequence[str]) -> str:
    return " or ".join(mechanisms) or "no mechanism at all"
