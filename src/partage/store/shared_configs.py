"""The altered configs of brokers and groups of a cluster, in one node that all brokers watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from partage.store.zk_schema import ConfigsDoc, ZkPaths, decode, encode
from partage.store.zookeeper import (
    TRANSACTION_BYTES_MAX,
    ChangeCallback,
    Create,
    InDoubtError,
    RefusalReason,
    RefusedError,
    Session,
    SetData,
    StoreError,
    ZNode,
    retry_read,
)

_CONFLICTS: Final = (RefusalReason.VERSION, RefusalReason.EXISTS, RefusalReason.MISSING)


class ConfigsTooLargeError(StoreError):
    """Raised if the configs of all resources together do not fit into their node."""


class SharedConfigs:
    """The node with the configs. It does not exist before the first change."""

    def __init__(self, session: Session, paths: ZkPaths) -> None:
        self._session = session
        self._path = paths.configs

    async def read(self, changed: ChangeCallback | None = None) -> ConfigsDoc:
        """Return all configs.

        Args:
            changed: Called once, at the next change.

        Raises:
            ForeignDataError: The node was not written by Partage.
            InDoubtError: The connection was lost.
            SessionEndedError: The session ended.
        """
        return self._decode(await self._session.read(self._path, changed))

    async def change(
        self, decisions: Mapping[str, Callable[[Mapping[str, str]], Mapping[str, str] | None]]
    ) -> None:
        """Change the configs of some resources with one write.

        Args:
            decisions: A function for each resource, by its key in `ConfigsDoc`. It returns the new
                configs from the current ones, or None to change nothing. It is called again after a
                concurrent change, or if the outcome of a write is unknown. So an edit must give the
                same configs if it is applied twice.

        Raises:
            ConfigsTooLargeError: The configs of all resources have too many bytes.
            ForeignDataError: The node was not written by Partage.
            SessionEndedError: The session ended.
        """
        while True:
            node = await retry_read(self._session, lambda: self._session.read(self._path))
            doc = self._decode(node)
            decided = {key: decide(doc.resources.get(key, {})) for key, decide in decisions.items()}
            changed = {key: configs for key, configs in decided.items() if configs is not None}
            if not changed:
                return
            content = encode(doc.with_configs(changed))
            if len(content) > TRANSACTION_BYTES_MAX:
                raise ConfigsTooLargeError(
                    f"the configs of all brokers and groups would have {len(content)} bytes, more "
                    f"than {TRANSACTION_BYTES_MAX}; delete those of unused groups"
                )
            operation = (
                Create(self._path, content)
                if node is None
                else SetData(self._path, content, node.version)
            )
            try:
                await self._session.transact([operation])
            except InDoubtError:
                await self._session.wait_connected()
            except RefusedError as refused:
                if refused.reason not in _CONFLICTS:
                    raise
            else:
                return

    def _decode(self, node: ZNode | None) -> ConfigsDoc:
        return ConfigsDoc() if node is None else decode(self._path, node.data, ConfigsDoc)
