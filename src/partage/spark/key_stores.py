"""Key and trust stores of Java clients: PKCS#12 is converted to PEM, JKS is rejected.

A store is recognized by its first bytes, not by its declared type. So does Java: its type JKS also
reads PKCS#12, which is ``keytool``'s default.
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final, Literal

from partage.spark.bounds import SparkOptionError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

StoreFormat = Literal["PEM", "PKCS12", "JKS"]

#: First bytes of JKS and JCEKS stores of ``keytool``.
_JKS_STARTS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_ASN1_SEQUENCE: Final = b"\x30"
_START_BYTES: Final = 4


def store_format(name: str, location: str) -> StoreFormat:
    """Return the format of a store, by its first bytes.

    Args:
        name: the option, for the message.
        location: path of the store.

    Raises:
        SparkOptionError: if the file cannot be read.
    """
    start = _read(name, location)[:_START_BYTES]
    if start in _JKS_STARTS:
        return "JKS"
    return "PKCS12" if start.startswith(_ASN1_SEQUENCE) else "PEM"


def read_trust_store(name: str, location: str, password: str | None) -> str:
    """Return the certificates of a PKCS#12 store as PEM text.

    Args:
        name: the option with the location, for messages.
        location: path of the store.
        password: password of the store, if there is one.

    Raises:
        SparkOptionError: if the store cannot be read, or contains no certificate.
    """
    store = _load(name, location, password, "-nokeys")
    text = _certificates_of(store)
    if not text:
        raise SparkOptionError(f"{name}: {location} contains no certificate")
    return text


def read_key_store(name: str, location: str, password: str | None) -> str:
    """Return the certificate, its chain and the encrypted key of a PKCS#12 store as PEM text.

    The key is encrypted with the password of the store.

    Args:
        name: the option with the location, for messages.
        location: path of the store.
        password: password of the store, if there is one.

    Raises:
        SparkOptionError: if the store cannot be read, or contains no key with its certificate.
    """
    store = _load(name, location, password, "")
    from cryptography.hazmat.primitives import serialization

    if store.key is None or store.cert is None:
        raise SparkOptionError(f"{name}: {location} contains no key with its certificate")
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password.encode())
    key = store.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    return _certificates_of(store) + key.decode()


def jks_error(name: str, location: str) -> SparkOptionError:
    """Return the error for a JKS store, with the command that converts it."""
    converted = str(Path(location).with_suffix(".p12"))
    return SparkOptionError(
        f"{name}: {location} is a JKS store, which only Java reads; convert it with: "
        f"keytool -importkeystore -srckeystore {quote(location)} "
        f"-destkeystore {quote(converted)} -deststoretype PKCS12; then set {name}={converted}"
    )


def _load(
    name: str, location: str, password: str | None, pem_flags: str
) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        converted = str(Path(location).with_suffix(".pem"))
        command = f"openssl pkcs12 -in {quote(location)} {pem_flags}".rstrip()
        raise SparkOptionError(
            f"{name}: {location} is a PKCS#12 store; to read it: pip install 'partage[pkcs12]'. "
            f"To convert it: {command} -out {quote(converted)}; then set {name}={converted}"
        ) from None
    try:
        return pkcs12.load_pkcs12(_read(name, location), password.encode() if password else None)
    except ValueError as error:
        raise SparkOptionError(
            f"{name}: {location} cannot be read as PKCS#12: {error}; check the store's password"
        ) from None


def _certificates_of(store: PKCS12KeyAndCertificates) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    own = () if store.cert is None else (store.cert,)
    found = [each.certificate for each in (*own, *store.additional_certs)]
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in found)


def _read(name: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise SparkOptionError(f"{name}: {location}: {error.strerror}") from None
