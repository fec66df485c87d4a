"""A certificate authority for tests."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from partage.model.addresses import Address

DAY = datetime.timedelta(days=1)
PEM = serialization.Encoding.PEM


class Authority:
    """A certificate authority; its files are written to ``directory``."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = directory / f"{name}.pem"
        own = self._signed(self._name, self._key.public_key(), is_authority=True)
        self.certificate.write_bytes(own.public_bytes(PEM))

    def issue(
        self,
        name: str,
        *hosts: str,
        password: str | None = None,
        days: int = 1,
    ) -> IssuedCertificate:
        """Issue a certificate for these hosts, or for a client if there are none."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._signed(_name(name), key.public_key(), hosts, days=days)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        issued = IssuedCertificate(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        issued.certificate.write_bytes(signed.public_bytes(PEM))
        issued.key.write_bytes(
            key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return issued

    def _signed(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePublicKey,
        hosts: tuple[str, ...] = (),
        *,
        days: int = 1,
        is_authority: bool = False,
    ) -> x509.Certificate:
        until = datetime.datetime.now(datetime.UTC) + days * DAY
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(until - 10 * DAY)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


class IssuedCertificate:
    """The files of an issued certificate."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate = certificate
        self.key = key

    def server(self, *, clients_of: Authority | None = None) -> ssl.SSLContext:
        """Return a server context; with ``clients_of`` it requires a client certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        if clients_of is not None:
            context.load_verify_locations(clients_of.certificate)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def in_one_file(self) -> Self:
        """Write the key before the certificate into one file, as Kafka expects it."""
        both = self.certificate.with_suffix(".both")
        both.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())
        return type(self)(both, both)


class AlertingPort:
    """A port that rejects TLS handshakes with an alert, as most servers do; asyncio's closes
    without one.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listening.getsockname()[:2])
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            with accepted:
                accepted.settimeout(20)
                with accepted.dup() as raw:  # Wrapping takes over the other socket
                    with suppress(OSError):
                        self._context.wrap_socket(accepted, server_side=True).close()
                    with suppress(OSError):
                        raw.shutdown(socket.SHUT_WR)
                        while raw.recv(1000):  # Closing with unread bytes would drop the alert
                            pass


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
