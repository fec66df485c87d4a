"""The product's coordinator with groups of the consumer protocol."""

from __future__ import annotations

from partage.model.settings import GroupSettings
from partage.proposals.consumer_protocol.apis import API_BY_REQUEST
from partage.proposals.product.coordinator import ProductCoordinator


class ConsumerProtocolCoordinator(ProductCoordinator):
    """A coordinator of groups with ConsumerGroupHeartbeat.

    Args:
        settings: The settings of groups.
    """

    def __init__(self, settings: GroupSettings) -> None:
        super().__init__(settings, API_BY_REQUEST)
