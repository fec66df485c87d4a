"""A member of a group, in memory."""

from __future__ import annotations

from partage.coordinator.events import Protocol, Ticket
from partage.coordinator.records import MemberRecord
from partage.coordinator.timers import SessionTimer


def record_size(
    member_id: str, instance_id: str | None, client_id: str, protocols: tuple[Protocol, ...]
) -> int:
    """Return an upper bound of the bytes that a member takes in its group's record."""
    size = len(f"{member_id}{instance_id or ''}{client_id}".encode())
    for protocol in protocols:
        size += len(protocol.name.encode()) + len(protocol.metadata)
    return size


class Member:
    """One member, and the tickets of its parked requests.

    A member whose Join or Sync has no reply yet is **parked**. It has no session timer: its client
    cannot send heartbeats on a connection that waits for a reply.
    """

    __slots__ = (
        "client_host",
        "client_id",
        "id",
        "instance_id",
        "is_new",
        "join_ticket",
        "joined_ms",
        "protocols",
        "rebalance_timeout_ms",
        "record_bytes",
        "session_timeout_ms",
        "session_timer",
        "sync_ticket",
    )

    def __init__(
        self,
        *,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[Protocol, ...],
    ) -> None:
        self.id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.session_timer = self.session_timer_key(group_id, member_id)
        self.record_bytes = record_size(member_id, instance_id, client_id, protocols)
        self.join_ticket: Ticket | None = None
        self.joined_ms = -1  # when it was last parked in a Join
        self.sync_ticket: Ticket | None = None
        self.is_new = False  # has never had a reply

    @staticmethod
    def session_timer_key(group_id: str, member_id: str) -> SessionTimer:
        """Return the key of a member's session timer; pending members use it too."""
        return SessionTimer(group_id, member_id)

    @property
    def is_parked(self) -> bool:
        """True if the member waits for a reply."""
        return self.join_ticket is not None or self.sync_ticket is not None

    @property
    def is_static(self) -> bool:
        """True if the member has an instance id (KIP-345)."""
        return self.instance_id is not None

    def protocol_names(self) -> dict[str, None]:
        """Return the names of its protocols, most preferred first, without duplicates."""
        return {protocol.name: None for protocol in self.protocols}

    def metadata(self, protocol: str | None) -> bytes:
        """Return its metadata for a protocol; empty if it does not list the protocol."""
        for own in self.protocols:
            if own.name == protocol:
                return own.metadata
        return b""

    def version(self, protocol: str | None) -> int:
        """Return its version of a protocol; -1 if it does not state one or does not list the
        protocol.
        """
        return next((own.version for own in self.protocols if own.name == protocol), -1)

    def to_record(self, protocol: str | None, assignment: bytes) -> MemberRecord:
        """Return the member as it is stored with a generation."""
        return MemberRecord(
            member_id=self.id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )
