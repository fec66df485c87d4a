"""One request/response pair of the protocol, in all its versions."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from partage.wire import codec
from partage.wire.types import Buffer, Message

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)


class Api(Generic[Req, Res]):
    """An API key with its two messages.

    ``versions`` are the versions this project speaks, lowest and highest; ``flexible`` is the
    first version with compact lengths and tagged fields (KIP-482), None if there is none;
    ``allowance`` bounds what a request makes of its bytes.
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
        allowance: codec.Allowance = codec.REQUEST_ALLOWANCE,
    ) -> None:
        self.key = key
        self.name = name
        self.request = request
        self.response = response
        self.version_min, self.version_max = versions
        self._flexible = flexible
        self._allowance = allowance
        self._response_headers = [
            1 if self.is_flexible(version) and key != API_VERSIONS_KEY else 0
            for version in range(self.version_max + 1)
        ]
        self._request_decoders: dict[int, codec.Decoder] = {}

    def __repr__(self) -> str:
        return f"{self.name}({self.key}) v{self.version_min}-{self.version_max}"

    def supports(self, version: int) -> bool:
        """Whether ``version`` is one of ours."""
        return self.version_min <= version <= self.version_max

    def is_flexible(self, version: int) -> bool:
        """Whether ``version`` has compact lengths and tagged fields."""
        return self._flexible is not None and version >= self._flexible

    def response_header_version(self, version: int) -> int:
        """1 with tagged fields after the correlation id, 0 without.

        ApiVersions is always answered with 0: a client that does not know the broker yet must be
        able to read the answer (KIP-511).
        """
        return self._response_headers[version]

    def decode_request(self, version: int, buf: Buffer, pos: int = 0) -> Req:
        """The request body at ``pos``; raises `Malformed`."""
        decode = self._request_decoders.get(version)
        if decode is None:
            flexible = self.is_flexible(version)
            decode = codec.decoder(self.request, version, flexible, self._allowance)
            self._request_decoders[version] = decode
        message: Req = decode(buf, pos)[0]
        return message

    def encode_request(self, version: int, message: Req) -> list[Buffer]:
        """The request body as buffers to be sent one after the other."""
        return codec.encoder(self.request, version, self.is_flexible(version))(message)

    def decode_response(self, version: int, buf: Buffer, pos: int = 0) -> Res:
        """The response body at ``pos``; raises `Malformed`."""
        message: Res
        message, _ = codec.decoder(self.response, version, self.is_flexible(version))(buf, pos)
        return message

    def encode_response(self, version: int, message: Res) -> list[Buffer]:
        """The response body as buffers to be sent one after the other."""
        return codec.encoder(self.response, version, self.is_flexible(version))(message)


API_VERSIONS_KEY = 18

AnyApi = Api[Any, Any]
