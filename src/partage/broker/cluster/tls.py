"""TLS to ZooKeeper: trust store, key store and kazoo's connections.

kazoo supports TLS, but it also trusts the system's certificate authorities, and it does not check
for bytes that OpenSSL has already read: a response could wait there until the next one arrives.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from partage.broker.cluster.cluster_session import ZooKeeperTlsError
from partage.model.settings import BrokerSettings


def ssl_context(settings: BrokerSettings) -> ssl.SSLContext | None:
    """Return the TLS context for connections to ZooKeeper, or None if TLS is disabled.

    Raises:
        ZooKeeperTlsError: the settings are invalid.
    """
    trusted, own = settings.zookeeper_truststore, settings.zookeeper_keystore
    if not settings.zookeeper_tls:
        if trusted or own:
            raise ZooKeeperTlsError(
                "a truststore or keystore for ZooKeeper needs zookeeper.ssl.client.enable=true"
            )
        return None
    try:
        context = ssl.create_default_context(cafile=trusted)
    except OSError as error:
        raise _bad_file("truststore", trusted, error) from None
    if own is not None:
        try:
            # Without any password, OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(own, password="")
        except OSError as error:
            raise _bad_file("keystore", own, error) from None
    return context


def _bad_file(which: str, path: str | None, error: OSError) -> ZooKeeperTlsError:
    why = error.strerror or str(error)
    if isinstance(error, ssl.SSLError):
        what = "certificates" if which == "truststore" else "an unencrypted key and its certificate"
        why = f"the file does not contain {what} in PEM format"
    return ZooKeeperTlsError(f"zookeeper.ssl.{which}.location={path}: {why}")


class KazooTlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Creates kazoo's connections; ``fault`` is the last TLS error, or empty."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self.fault = ""
        self._context = context

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_options: Any
    ) -> ssl.SSLSocket:
        """Return a connection after the TLS handshake.

        Args:
            address: The host and port, as a plain tuple of kazoo.
            hostname: The host name in the certificate.
            timeout: The time limit of the TCP connection, in seconds.

        Raises:
            OSError: the connection or the handshake failed.
        """
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self._context.wrap_socket(plain, server_hostname=hostname)
        except BaseException as error:
            plain.close()
            if isinstance(error, ssl.SSLError):
                self.fault = getattr(error, "verify_message", "") or error.reason or str(error)
            raise
        self.fault = ""
        return connection

    def select(
        self, reading: list[Any], writing: list[Any], failed: list[Any], timeout: float | None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the ready sockets, including those with bytes that OpenSSL has read but kazoo has
        not.
        """
        held = [each for each in reading if isinstance(each, ssl.SSLSocket) and each.pending()]
        found = super().select(reading, writing, failed, 0 if held else timeout)
        readable = held + [each for each in found[0] if each not in held]
        return readable, found[1], found[2]
