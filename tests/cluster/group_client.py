"""A client that looks up the coordinator and retries, as real clients do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from broker.group_requests import commit_request, join_request, sync_request
from broker.raw_client import RawClient
from partage.wire.api import Api
from partage.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from partage.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from partage.wire.apis.join_group import JOIN_GROUP, JoinGroupResponse
from partage.wire.apis.offset_commit import OFFSET_COMMIT
from partage.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from partage.wire.apis.sync_group import SYNC_GROUP

from .brokers import PATIENCE_S, ClusterBroker

#: Loading, not available, not the coordinator: clients retry after these errors.
RETRIABLE = (14, 15, 16)
#: Of requests, which a suspended broker does not answer.
REQUEST_TIMEOUT_S = 3.0


def error_of(answer: Any) -> int:
    """Return the error code of any response of the group APIs."""
    if getattr(answer, "groups", None):
        return int(answer.groups[0].error_code)
    if hasattr(answer, "error_code"):
        return int(answer.error_code)
    return max(int(p.error_code) for topic in answer.topics for p in topic.partitions)


class GroupClient:
    """Sends requests for one group; ``errors`` are all retriable errors it received."""

    def __init__(self, running: Sequence[ClusterBroker], group: str) -> None:
        self.group = group
        self.errors: list[int] = []
        self._running = running
        self._raw: RawClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()
            self._raw = None

    def coordinator(self) -> str:
        """Return the address of the group's coordinator."""
        return self.find()[1]

    def find(self) -> tuple[int, str]:
        """Return id and address of the coordinator, from any broker that knows it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for broker in self._running:
                try:
                    with RawClient(broker.address, timeout_s=REQUEST_TIMEOUT_S) as raw:
                        request = FindCoordinatorRequest(coordinator_keys=[self.group])
                        (found,) = raw.request(FIND_COORDINATOR, request).coordinators
                except OSError:
                    continue
                if not found.error_code:
                    return found.node_id, f"{found.host}:{found.port}"
                self.errors.append(int(found.error_code))
            time.sleep(0.02)
        raise AssertionError("there is no coordinator")

    def request(
        self,
        api: Api[Any, Any],
        message: Any,
        version: int | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Any:
        """Return the first response without a retriable error."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                if self._raw is None:
                    self._raw = RawClient(self.coordinator())
                self._raw.socket.settimeout(timeout_s)
                answer = self._raw.request(api, message, version)
            except (OSError, EOFError, AssertionError):
                self.close()
                time.sleep(0.02)
                continue
            error = error_of(answer)
            if error not in RETRIABLE:
                return answer
            self.errors.append(error)
            if error != 14:
                self.close()
            time.sleep(0.02)
        raise AssertionError(f"no answer but {sorted(set(self.errors))}")

    def join(self, member_id: str = "", **options: Any) -> JoinGroupResponse:
        """Join as clients do: with the generated id, or as a new member if the id is unknown.

        The coordinator delays its response. A second request could begin a second generation.
        """
        while True:
            request = join_request(self.group, member_id, **options)
            answer: JoinGroupResponse = self.request(JOIN_GROUP, request, timeout_s=PATIENCE_S)
            if answer.error_code not in (79, 25):
                return answer
            member_id = answer.member_id if answer.error_code == 79 else ""

    def sync(self, joined: JoinGroupResponse, assigned: bytes | None = b"all") -> Any:
        assignments = {} if assigned is None else {joined.member_id: assigned}
        return self.request(SYNC_GROUP, sync_request(self.group, joined, assignments))

    def join_and_sync(self, **options: Any) -> JoinGroupResponse:
        joined = self.join(**options)
        assert joined.error_code == 0
        assert self.sync(joined).error_code == 0
        return joined

    def heartbeat(self, joined: JoinGroupResponse) -> int:
        return self._beat(joined.member_id, joined.generation_id)

    def _beat(self, member_id: str, generation: int) -> int:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member_id
        )
        return int(self.request(HEARTBEAT, request).error_code)

    def generation(self, member_id: str) -> int:
        """Return the generation of another client's member; in others its heartbeats fail."""
        for generation in range(1, 1000):
            if (error := self._beat(member_id, generation)) != 22:
                assert error == 0
                return generation
        raise AssertionError(f"{member_id} is in no generation")

    def commit(self, topic: str, offset: int, joined: JoinGroupResponse | None = None) -> int:
        return error_of(
            self.request(OFFSET_COMMIT, commit_request(self.group, topic, {0: offset}, joined))
        )

    def committed(self, topic: str) -> int:
        asked = OffsetFetchTopic(name=topic, partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=self.group, topics=[asked])])
        answer = self.request(OFFSET_FETCH, request)
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def client_coordinated_by(
    running: dict[int, ClusterBroker], broker_id: int, like: Callable[[int], str] = "group{}".format
) -> GroupClient:
    """Return a client for a group that this broker coordinates."""
    everybody = list(running.values())
    for number in range(200):
        client = GroupClient(everybody, like(number))
        if client.find()[0] == broker_id:
            return client
    raise AssertionError(f"broker {broker_id} coordinates nothing")
