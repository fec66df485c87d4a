"""An API of the Kafka protocol: a request and a response type in all supported versions."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from partage.wire import codec
from partage.wire.types import Buffer, Message

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


class Api(Generic[Req, Res]):
    """An API key with its request and response types.

    Args:
        key: Kafka's number of the API.
        name: Kafka's name of the API.
        request: Declaration of the request.
        response: Declaration of the response.
        versions: Lowest and highest supported version.
        flexible: First version with compact lengths and tagged fields (KIP-482), None if there is
            none.
        by_name_max: Last version whose messages have the names of topics; later ones have ids
            only. None if all supported versions have names, or no topics.
        allowance: Limit of the number of elements in a decoded request.
    """

    def __init__(
        self,
        key: int,
        name: str,
        request: type[Req],
        response: type[Res],
        *,
        versions: tuple[int, int],
        flexible: int | None,
        by_name_max: int | None = None,
        allowance: codec.Allowance = codec.REQUEST_ALLOWANCE,
    ) -> None:
        self.key = key
        self.name = name
        self.request = request
        self.response = response
        self.version_min, self.version_max = versions
        self.by_name_max = self.version_max if by_name_max is None else by_name_max
        self._flexible = flexible
        self._allowance = allowance
        self._response_headers = [
            1 if self.is_flexible(version) and key != API_VERSIONS_KEY else 0
            for version in range(self.version_max + 1)
        ]
        self._request_decoders: dict[int, codec.Decoder] = {}
        self._response_encoders: dict[int, codec.Encoder] = {}

    def __repr__(self) -> str:
        return f"{self.name}({self.key}) v{self.version_min}-{self.version_max}"

    def supports(self, version: int) -> bool:
        """True if ``version`` is supported."""
        return self.version_min <= version <= self.version_max

    def is_flexible(self, version: int) -> bool:
        """True if ``version`` has compact lengths and tagged fields (KIP-482)."""
        return self._flexible is not None and version >= self._flexible

    def response_header_version(self, version: int) -> int:
        """Return the response header version: 1 with tagged fields, 0 without.

        ApiVersions always uses 0, because a client must be able to read the response before it
        knows the broker's versions (KIP-511).
        """
        return self._response_headers[version]

    def decode_request(self, version: int, buf: Buffer, pos: int = 0) -> Req:
        """Decode the request body at ``pos``.

        Raises:
            MalformedError: The bytes are not such a request.
        """
        decode = self._request_decoders.get(version)
        if decode is None:
            flexible = self.is_flexible(version)
            decode = codec.decoder(self.request, version, flexible, self._allowance)
            self._request_decoders[version] = decode
        message: Req = decode(buf, pos)[0]
        return message

    def encode_request(self, version: int, message: Req) -> list[Buffer]:
        """Encode a request body as buffers to send one after the other."""
        return codec.encoder(self.request, version, self.is_flexible(version))(message)

    def decode_response(self, version: int, buf: Buffer, pos: int = 0) -> Res:
        """Decode the response body at ``pos``.

        Raises:
            MalformedError: The bytes are not such a response.
        """
        message: Res
        message, _ = codec.decoder(self.response, version, self.is_flexible(version))(buf, pos)
        return message

    def encode_response(self, version: int, message: Res) -> list[Buffer]:
        """Encode a response body as buffers to send one after the other."""
        encode = self._response_encoders.get(version)
        if encode is None:
            encode = codec.encoder(self.response, version, self.is_flexible(version))
            self._response_encoders[version] = encode
        return encode(message)


API_VERSIONS_KEY = 18

AnyApi = Api[Any, Any]
