"""Settings of a member with the consumer group protocol."""

from __future__ import annotations

from typing import Self

from partage.member.settings import MemberSettings


class ConsumerMemberSettings(MemberSettings, frozen=True, kw_only=True):
    """The settings of `MemberSettings`, and those that only this protocol has.

    ``heartbeat_interval_ms`` is used until the coordinator sends its interval. The member does not
    know the session timeout of the coordinator. ``session_timeout_ms`` is the time for which the
    member trusts an accepted heartbeat: the least value of Kafka's
    ``group.consumer.session.timeout.ms`` by default.
    """

    protocol_type: str = "consumer"
    rack_id: str | None = None  # client.rack
    server_assignor: str | None = None  # group.remote.assignor; None for the broker's default

    @classmethod
    def from_classic(
        cls, settings: MemberSettings, *, rack_id: str | None, server_assignor: str | None
    ) -> Self:
        """Return the settings of the same member with this protocol.

        The coordinator decides the settings that are left out.
        """
        return cls(
            group_id=settings.group_id,
            instance_id=settings.instance_id,
            rack_id=rack_id,
            server_assignor=server_assignor,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            request_timeout_ms=settings.request_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
        )
