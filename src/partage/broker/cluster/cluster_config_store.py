"""Changes of broker and group configs for the whole cluster."""

from __future__ import annotations

from collections.abc import Mapping
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

    async def change(self, key: str, decide: ConfigDecision) -> Refusal | None:
        """Change the configs of one resource; return once this broker has applied the change.

        Refuses with REQUEST_TIMED_OUT if ZooKeeper does not answer, and with POLICY_VIOLATION if
        the configs have too many bytes.
        """
        refused: list[Refusal] = []

        def deciding(current: Mapping[str, str]) -> Mapping[str, str] | None:
            refused.clear()
            decided = decide(current)
            if isinstance(decided, Refusal):
                refused.append(decided)
                return None
            return decided

        async def changing() -> Refusal | None:
            try:
                await self._membership.shared_configs().change(key, deciding)
            except ConfigsTooLargeError as error:
                return Refusal(ErrorCode.POLICY_VIOLATION, str(error))
            if not refused:
                await self._membership.refresh_configs()
            return None

        failure = await with_timeout(changing)
        return failure or next(iter(refused), None)
