"""Storage of altered broker and group configs: the interface, and the file of a single broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from partage.broker.topics.data_directory import read_json_file
from partage.log.disk import Disk
from partage.log.io import replace_file
from partage.log.results import Refusal
from partage.model.errors import ErrorCode
from partage.store.zk_schema import ConfigsDoc

_FILE: Final = "configs.json"
#: The file is rewritten at every change, and held in memory.
_BYTES_MAX: Final = 4 * 1024 * 1024
DECISIONS_PER_TURN: Final = 100  # of the event loop

#: Returns the new configs of a resource from its current ones, or the reason for a refusal. It may
#: be called again after a concurrent change.
ConfigDecision = Callable[[Mapping[str, str]], Mapping[str, str] | Refusal]
ConfigsListener = Callable[[ConfigsDoc], None]


class ConfigStore(Protocol):
    """The durable configs of brokers and groups, by the key of their resource."""

    async def change(self, decisions: Mapping[str, ConfigDecision]) -> dict[str, Refusal]:
        """Change the configs of some resources with one write.

        Args:
            decisions: by the key of the resource.

        Returns:
            The refusals, by the key of the resource. The other changes are durable and in effect.
        """


class LocalConfigStore:
    """A file in the data directory of a single broker.

    Args:
        disk: the data directory.
        changed: called with all configs when they were read or changed.
    """

    def __init__(self, disk: Disk, changed: ConfigsListener) -> None:
        self._disk = disk
        self._on_changed = changed
        self._doc = ConfigsDoc()
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Read the file.

        Raises:
            DamagedFileError: the file cannot be decoded.
        """
        advice = "remove it; altered configs of brokers and groups then have their defaults"
        doc = await asyncio.to_thread(read_json_file, self._disk, _FILE, ConfigsDoc, advice)
        if doc is not None:
            self._use(doc)

    async def change(self, decisions: Mapping[str, ConfigDecision]) -> dict[str, Refusal]:
        """Change the configs of some resources with one write of the file.

        Refuses all with KAFKA_STORAGE_ERROR if the disk fails, and with POLICY_VIOLATION if the
        configs would have too many bytes.
        """
        async with self._lock:
            changed = dict[str, Mapping[str, str]]()
            refused = dict[str, Refusal]()
            for count, (key, decide) in enumerate(decisions.items(), 1):
                if count % DECISIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
                decided = decide(self._doc.resources.get(key, {}))
                if isinstance(decided, Refusal):
                    refused[key] = decided
                else:
                    changed[key] = decided
            if changed and (failure := await self._write(self._doc.with_configs(changed))):
                refused |= dict.fromkeys(changed, failure)
            return refused

    async def _write(self, doc: ConfigsDoc) -> Refusal | None:
        content = msgspec.json.encode(doc)
        if len(content) > _BYTES_MAX:
            return Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"the configs of all brokers and groups would have {len(content)} bytes, more "
                f"than {_BYTES_MAX}; delete those of unused groups",
            )
        try:
            await asyncio.to_thread(replace_file, self._disk, _FILE, content)
        except OSError as error:
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the configs cannot be written: {error}")
        self._use(doc)
        return None

    def _use(self, doc: ConfigsDoc) -> None:
        self._doc = doc
        self._on_changed(doc)
