"""Changes of broker and group configs for the whole cluster."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from partage.broker.cluster.store_timeout import with_timeout
from partage.broker.configs.config_store import ConfigDecision
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.store.shared_configs import ConfigsTooLargeError, SharedConfigs


class ConfigsMembership(Protocol):
    """The membership of this broker, as far as configs need it."""

    def shared_configs(self) -> SharedConfigs:
        """Return the configs of the current session."""

    async def refresh_configs(self) -> None:
        """Read the configs, and apply them to this broker."""


class ClusterConfigStore:
    """Stores configs in ZooKeeper. The other brokers apply a change as soon as they hear of it."""

    def __init__(self, membership: ConfigsMembership) -> None:
        self._membership = membership

    async def change(self, decisions: Mapping[str, ConfigDecision]) -> dict[str, Refusal]:
        """Change the configs of some resources; return once this broker has applied the changes.

        Refuses all with REQUEST_TIMED_OUT if ZooKeeper does not answer, and with POLICY_VIOLATION
        if the configs would have too many bytes.
        """
        refused: dict[str, Refusal] = {}

        def deciding(key: str, current: Mapping[str, str]) -> Mapping[str, str] | None:
            refused.pop(key, None)
            decided = decisions[key](current)
            if isinstance(decided, Refusal):
                refused[key] = decided
                return None
            return decided

        async def changing() -> Refusal | None:
            try:
                await self._membership.shared_configs().change(
                    {key: partial(deciding, key) for key in decisions}
                )
            except ConfigsTooLargeError as error:
                return Refusal(ErrorCode.POLICY_VIOLATION, str(error))
            if len(refused) < len(decisions):
                await self._membership.refresh_configs()
            return None

        failure = await with_timeout(changing)
        return refused if failure is None else {**dict.fromkeys(decisions, failure), **refused}
