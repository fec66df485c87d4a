"""Key stores and trust stores of Java clients, as librdkafka reads them."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Final, Literal

_StoreType = Literal["PEM", "PKCS12", "JKS"]

#: First bytes of JKS and JCEKS stores of ``keytool``.
_JKS_STARTS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_ASN1_SEQUENCE: Final = b"\x30"
_START_BYTES: Final = 4


def key_store_properties(location: str, declared: str, password: str) -> dict[str, str]:
    """Return the librdkafka properties for a key store.

    Args:
        location: Path of the store.
        declared: The property ``ssl.keystore.type``. It counts only if the file is missing: Java's
            type JKS also reads PKCS#12, which is the default of ``keytool``.
        password: Password of the store.

    Raises:
        ValueError: librdkafka cannot read the store.
    """
    name = "ssl.keystore.location"
    match _store_type(name, location, declared):
        case "PKCS12":
            return {name: location, "ssl.keystore.password": password}
        case "PEM":
            return {"ssl.key.location": location, "ssl.certificate.location": location}
        case _:
            to_pkcs12, converted = _to_pkcs12(location)
            raise ValueError(
                f"{name}={location} is a JKS store, which only Java reads; convert it with: "
                f"{to_pkcs12}; then set {name}={converted}"
            )


def trust_store_properties(location: str, declared: str) -> dict[str, str]:
    """Return the librdkafka properties for a trust store.

    Args:
        location: Path of the store.
        declared: The property ``ssl.truststore.type``. It counts only if the file is missing.

    Raises:
        ValueError: librdkafka cannot read the store.
    """
    name = "ssl.truststore.location"
    kind = _store_type(name, location, declared)
    if kind == "PEM":
        return {"ssl.ca.location": location}
    pem = str(Path(location).with_suffix(".pem"))
    if kind == "PKCS12":
        commands, what = _to_pem(location, pem), "PKCS#12"
    else:
        to_pkcs12, converted = _to_pkcs12(location)
        commands, what = f"{to_pkcs12} && {_to_pem(converted, pem)}", "JKS"
    raise ValueError(
        f"{name}={location} is a {what} store, but librdkafka reads PEM only; convert it with: "
        f"{commands}; then set {name}={pem} and ssl.truststore.type=PEM"
    )


def _store_type(name: str, location: str, declared: str) -> _StoreType:
    try:
        with Path(location).open("rb") as file:
            start = file.read(_START_BYTES)
    except OSError as error:
        match declared.upper():
            case "PEM":
                return "PEM"
            case "PKCS12":
                return "PKCS12"
            case _:
                reason = (error.strerror or str(error)).lower()
                raise ValueError(f"{name}={location}: {reason}; correct the path") from error
    if start in _JKS_STARTS:
        return "JKS"
    return "PKCS12" if start.startswith(_ASN1_SEQUENCE) else "PEM"


def _to_pkcs12(location: str) -> tuple[str, str]:
    converted = str(Path(location).with_suffix(".p12"))
    command = f"keytool -importkeystore -srckeystore {quote(location)} "
    return f"{command}-destkeystore {quote(converted)} -deststoretype PKCS12", converted


def _to_pem(location: str, pem: str) -> str:
    return f"openssl pkcs12 -in {quote(location)} -nokeys -out {quote(pem)}"
