"""Rack-aware: cooperative-sticky for clusters whose brokers do not say in which rack they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from partage.assignors.sticky import CooperativeSticky


class RackAware(CooperativeSticky):
    """Reads from replicas nearby, where the rack of a broker may follow from its host's name.

    ``rack_of_host`` is asked for brokers without a rack in the metadata; None is no rack. All
    members should be given the same. What is assigned is as level as `CooperativeSticky`, which
    matches racks, too, where the brokers have them.
    """

    name: ClassVar[str] = "rack-aware"

    def __init__(self, rack_of_host: Callable[[str], str | None] | None = None) -> None:
        super().__init__()
        self._rack_of_host = rack_of_host

    def rack_of_broker(self, host: str, rack: str | None) -> str | None:
        if rack or self._rack_of_host is None:
            return rack
        return self._rack_of_host(host)
