"""The log of requests and protocols that this broker does not support.

Like Kafka, the broker closes the connection of a client that sends such a request, because the
client cannot read any other answer. Some clients then connect and try again, many times a second.
So each request of a client is logged once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from partage.wire.api import AnyApi
from partage.wire.frames import parse_client_id, parse_request_prefix
from partage.wire.primitives import MalformedError
from partage.wire.types import Buffer

log = logging.getLogger(__name__)

#: Number of requests to remember. If there are more, the oldest may be logged again.
_REMEMBERED_MAX: Final = 1000
_CLIENT_ID_CHARACTERS_MAX: Final = 100

#: The content type and the major version of a TLS record (RFC 8446, 5.1).
_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_METHODS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD")

#: Kafka's names of APIs that clients use and this broker does not serve.
_OTHER_APIS: Final = {
    27: "WriteTxnMarkers",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    49: "AlterClientQuotas",
    51: "AlterUserScramCredentials",
    64: "UnregisterBroker",
    69: "ConsumerGroupDescribe",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
    90: "DescribeShareGroupOffsets",
    91: "AlterShareGroupOffsets",
    92: "DeleteShareGroupOffsets",
}


class UnsupportedRequestLogger:
    """Logs each unsupported request once for each client.

    Args:
        apis: the APIs that this broker serves, by key.
    """

    def __init__(self, apis: Mapping[int, AnyApi]) -> None:
        self._apis = apis
        self._reported: OrderedDict[tuple[str, str, int, int], None] = OrderedDict()

    def report(self, client_host: str, frame: Buffer) -> None:
        """Log that the connection of a client was closed for this request, unless it is known."""
        key, version, _ = parse_request_prefix(frame)
        try:
            client_id = parse_client_id(frame)[0] or ""
        except MalformedError:
            client_id = ""
        client_id = client_id[:_CLIENT_ID_CHARACTERS_MAX]
        request = (client_host, client_id, key, version)
        if self._is_known(request):
            return
        api = self._apis.get(key)
        if api is None:
            name = _OTHER_APIS.get(key, "unknown API")
            why = f"{name} (API key {key}) version {version} is not supported"
        else:
            why = (
                f"{api.name} version {version} is not supported, versions {api.version_min} to "
                f"{api.version_max} are"
            )
        log.warning(
            "closed the connection of %s, client id %r: %s; further requests of this kind by this "
            "client are not logged",
            client_host,
            client_id,
            why,
        )

    def is_foreign(self, client_host: str, data: bytes) -> bool:
        """Return True if a client speaks TLS or HTTP, and log that its connection was closed.

        Args:
            client_host: the client's address.
            data: the first four bytes of a frame, which are not a valid size.
        """
        if data.startswith(_TLS_HANDSHAKE):
            why = (
                "it began a TLS handshake, but this port does not support TLS; set the client's "
                "security.protocol to PLAINTEXT"
            )
        elif data in _HTTP_METHODS:
            why = "it sent an HTTP request, but this port serves Kafka's protocol"
        else:
            return False
        if not self._is_known((client_host, why, -1, -1)):
            log.warning(
                "closed the connection of %s: %s; further connections of this kind by this host "
                "are not logged",
                client_host,
                why,
            )
        return True

    def _is_known(self, request: tuple[str, str, int, int]) -> bool:
        """Return True if the request is in memory, and remember it."""
        if request in self._reported:
            self._reported.move_to_end(request)
            return True
        self._reported[request] = None
        if len(self._reported) > _REMEMBERED_MAX:
            self._reported.popitem(last=False)
        return False
