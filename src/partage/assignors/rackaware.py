"""The rack-aware assignor: cooperative-sticky for clusters whose brokers have no rack setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from partage.assignors.sticky import CooperativeSticky
from partage.model.arguments import check_function


class RackAware(CooperativeSticky):
    """Assigns partitions to members in the rack of a replica; a host name tells a broker's rack.

    A match saves traffic between racks if the leader is in that rack, as with one replica. A
    consumer with a ``client_rack`` reads from a follower there only if the brokers name one
    (KIP-392). For this they need a ``broker.rack`` and a ``replica.selector.class``.

    ``rack_of_host`` is called for brokers without a rack in the metadata; it returns None for no
    rack. All members should have the same function. The loads are as even as with
    `CooperativeSticky`, which also matches racks if the brokers have them.
    """

    name: ClassVar[str] = "rack-aware"

    def __init__(self, rack_of_host: Callable[[str], str | None] | None = None) -> None:
        super().__init__()
        if rack_of_host is not None:
            check_function("rack_of_host", rack_of_host, "a host name")
        self._rack_of_host = rack_of_host

    def rack_of_broker(self, host: str, rack: str | None) -> str | None:
        if rack or self._rack_of_host is None:
            return rack
        return self._rack_of_host(host)
