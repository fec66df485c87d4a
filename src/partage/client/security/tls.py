"""TLS contexts from options, and readable messages for OpenSSL errors."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Final, TypeGuard

from partage.client.security.errors import (
    CertificateHostMismatchError,
    ClientCertificateRejectedError,
    SecurityError,
    TlsNegotiationError,
    UntrustedCertificateError,
    WrongSecurityProtocolError,
)
from partage.client.security.options import InvalidSecurityOptionError, SecurityOptions
from partage.model.addresses import Address

# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL's x509_vfy.h.
_OTHER_HOST: Final = frozenset({62, 64})
# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_OUT_OF_DATE: Final = frozenset({9, 10})
#: Parts of OpenSSL's reasons for a broker's alert about the client certificate (RFC 8446 §6.2).
_ABOUT_OUR_CERTIFICATE: Final = (
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE_",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "ALERT_ACCESS_DENIED",
    "ALERT_NO_CERTIFICATE",
)
#: Parts of OpenSSL's reasons for bytes that are not TLS.
_NOT_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_TOO_",
)
#: The first bytes of JKS and JCEKS stores.
_JAVA_STORES: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER: Final = b"\x30"  # PKCS#12 is a sequence in DER
#: The first bytes of a TLS alert (RFC 8446 §5.1). As a frame size they exceed the maximum.
_ALERT: Final = b"\x15\x03"


def make_context(options: SecurityOptions) -> ssl.SSLContext | None:
    """Return the TLS context of a connection; None without TLS.

    Raises:
        InvalidSecurityOptionError: A file is missing or invalid.
    """
    if not options.uses_tls:
        return None
    if options.ssl_context is not None:
        return options.ssl_context
    try:
        context = ssl.create_default_context(cafile=options.ssl_cafile, cadata=options.ssl_cadata)
    except (OSError, ValueError) as error:
        name = "ssl_cadata" if options.ssl_cafile is None else f"ssl_cafile={options.ssl_cafile}"
        raise InvalidSecurityOptionError(f"{name}: {_file_error_text(error)}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = options.ssl_check_hostname
    if options.ssl_certfile is not None:
        name = f"ssl_certfile={options.ssl_certfile}"
        if options.ssl_keyfile is not None:
            name += f" and ssl_keyfile={options.ssl_keyfile}"
        _load_client_certificate(context, options, options.ssl_certfile, name)
    elif options.ssl_certdata is not None:
        # Python's ssl module reads certificates from files only.
        with tempfile.TemporaryDirectory() as directory:  # only this user can read it
            file = Path(directory) / "client.pem"
            file.write_text(options.ssl_certdata)
            _load_client_certificate(context, options, str(file), "ssl_certdata")
    return context


def _load_client_certificate(
    context: ssl.SSLContext, options: SecurityOptions, certfile: str, name: str
) -> None:
    """Load the certificate and its key; ``name`` names their options in the error."""
    # Always pass a password: without one OpenSSL prompts at the terminal.
    password = options.ssl_password or ""
    try:
        context.load_cert_chain(certfile, options.ssl_keyfile, password)
    except (OSError, ValueError) as error:
        reason = _key_store_text(certfile) or _file_error_text(error)
        raise InvalidSecurityOptionError(f"{name}: {reason}") from None


def _key_store_text(path: str) -> str | None:
    """Return how to convert a key store of Java or PKCS#12 to PEM; None for other files."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(4)
    except OSError:
        return None
    to_pem = "openssl pkcs12 -in client.p12 -out client.pem"
    if start in _JAVA_STORES:
        return (
            "it is a key store of Java, not PEM. Convert it: keytool -importkeystore -srckeystore "
            f"{path} -destkeystore client.p12 -deststoretype PKCS12 && {to_pem}"
        )
    if start[:1] == _DER:
        to_pem = to_pem.replace("client.p12", path)
        return f"it is not PEM. Convert a PKCS#12 store with: {to_pem}"
    return None


def _file_error_text(error: Exception) -> str:
    if not isinstance(error, ssl.SSLError):
        return (error.strerror if isinstance(error, OSError) else None) or str(error)
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not match the certificate"
    if "DECRYPT" in (getattr(error, "reason", None) or ""):
        return "the key cannot be decrypted; check ssl_password"
    return "it contains no readable PEM certificate or key (check ssl_password too)"


def is_tls_alert(start: bytes) -> bool:
    """True if a broker's first bytes are a TLS alert, so it expects TLS."""
    return start.startswith(_ALERT)


def has_tls_reason(error: Exception | None) -> TypeGuard[ssl.SSLError]:
    """True if OpenSSL names a reason; a connection that just ends may have any."""
    return isinstance(error, ssl.SSLError) and not isinstance(
        error, ssl.SSLEOFError | ssl.SSLZeroReturnError
    )


def is_from_tls_peer(error: Exception) -> bool:
    """True if the peer uses TLS, but the handshake failed."""
    return has_tls_reason(error) and not any(part in (error.reason or "") for part in _NOT_TLS)


def tls_error(address: Address, error: ssl.SSLError, *, has_certificate: bool) -> SecurityError:
    """Return the error for a failed TLS connection."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_HOST:
            return CertificateHostMismatchError(address, error.verify_message.rstrip("."))
        return UntrustedCertificateError(
            address, error.verify_message, is_out_of_date=error.verify_code in _OUT_OF_DATE
        )
    reason = error.reason or type(error).__name__
    words = reason.lower().replace("_", " ")
    if any(part in reason for part in _ABOUT_OUR_CERTIFICATE):
        return ClientCertificateRejectedError(address, words, has_one=has_certificate)
    if any(part in reason for part in _NOT_TLS):
        return plaintext_port_error(address)
    return TlsNegotiationError(address, words, has_certificate=has_certificate)


def plaintext_port_error(address: Address) -> WrongSecurityProtocolError:
    """Return the error for TLS with a plaintext port."""
    return WrongSecurityProtocolError(
        address,
        "this port does not speak TLS; connect to the broker's TLS listener, or set "
        "security_protocol to PLAINTEXT or SASL_PLAINTEXT",
    )


def tls_port_error(address: Address) -> WrongSecurityProtocolError:
    """Return the error for plaintext with a TLS port."""
    return WrongSecurityProtocolError(
        address, "this port speaks TLS; set security_protocol to SSL or SASL_SSL"
    )
