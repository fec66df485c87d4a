"""The product's coordinator with classic groups."""

from __future__ import annotations

from partage.model.settings import GroupSettings
from partage.proposals.product.coordinator import ProductCoordinator
from partage.proposals.two_phase.apis import API_BY_REQUEST


class TwoPhaseCoordinator(ProductCoordinator):
    """A coordinator of groups with JoinGroup and SyncGroup.

    Args:
        settings: The settings of groups.
    """

    def __init__(self, settings: GroupSettings) -> None:
        super().__init__(settings, API_BY_REQUEST)
