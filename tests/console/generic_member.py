"""A group member with arbitrary protocol type and metadata, such as a Connect worker."""

from __future__ import annotations

import socket
import struct
from contextlib import closing

from partage.wire.api import Api, Req, Res
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupProtocol, JoinGroupRequest
from partage.wire.apis.sync_group import SYNC_GROUP, SyncGroupAssignment, SyncGroupRequest
from partage.wire.frames import encode_request_frame, parse_response_header

VERSION = 2


class GenericMember(closing[socket.socket]):
    """Joins a group as its only member and leader, and assigns bytes to itself."""

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        metadata: bytes,
        mine: bytes,
        *,
        protocol_type: str = "connect",
        protocol: str = "sessioned",
    ) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        super().__init__(self._socket)
        joined = self._ask(
            JOIN_GROUP,
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id="",
                protocol_type=protocol_type,
                protocols=[JoinGroupProtocol(name=protocol, metadata=metadata)],
            ),
        )
        assert joined.error_code == 0
        self.member_id = joined.member_id
        synced = self._ask(
            SYNC_GROUP,
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[SyncGroupAssignment(member_id=joined.member_id, assignment=mine)],
            ),
        )
        assert bytes(synced.assignment) == mine

    def _ask(self, api: Api[Req, Res], request: Req) -> Res:
        body = api.encode_request(VERSION, request)
        self._socket.sendall(b"".join(encode_request_frame(api, VERSION, 1, "worker-1", body)))
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        _, pos = parse_response_header(api, VERSION, frame)
        return api.decode_response(VERSION, frame, pos)

    def _exactly(self, size: int) -> bytes:
        held = b""
        while len(held) < size:
            piece = self._socket.recv(size - len(held))
            assert piece, "the broker closed the connection"
            held += piece
        return held
