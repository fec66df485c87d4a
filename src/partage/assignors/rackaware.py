"""The rack-aware assignor: cooperative-sticky for clusters whose brokers have no rack setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from partage.assignors.sticky import CooperativeSticky


class RackAware(CooperativeSticky):
    """Places partitions near their replicas, where a broker's host name tells its rack.

    ``rack_of_host`` is called for brokers without a rack in the metadata; it returns None for no
    rack. All members should have the same function. The loads are as even as with
    `CooperativeSticky`, which also matches racks if the brokers have them.
    """

    name: ClassVar[str] = "rack-aware"

    def __init__(self, rack_of_host: Callable[[str], str | None] | None = None) -> None:
        super().__init__()
        self._rack_of_host = rack_of_host

    def rack_of_broker(self, host: str, rack: str | None) -> str | None:
        if rack or self._rack_of_host is None:
            return rack
        return self._rack_of_host(host)
