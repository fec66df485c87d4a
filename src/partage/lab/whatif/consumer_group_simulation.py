"""A copy of a live group as it is after its migration to the consumer protocol (KIP-848).

The simulation starts in the live state: the members, their epochs and their assignments are written
into the coordinator's state, and each member joins under its live id. After that, the production
code decides: the coordinator, the assignor of the broker, and the product's member.
"""

from __future__ import annotations

from typing import Final

import msgspec

from partage.coordinator.consumer_group.group import ConsumerGroup
from partage.coordinator.consumer_group.records import (
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    MemberAssignmentRecord,
    MemberTargetRecord,
    TargetAssignmentRecord,
)
from partage.coordinator.consumer_group.states import ConsumerGroupState
from partage.coordinator.records import Record
from partage.coordinator.shard import Shard
from partage.lab.clients.group_member import HeartbeatMember, SimSubscription
from partage.lab.clients.poll_loop import partitions_by_topic
from partage.lab.names import CONSUMER_GROUP
from partage.lab.scenario import Scenario
from partage.lab.whatif.live_group import LiveGroup, LiveMember
from partage.lab.whatif.simulated_group import (
    PROCESSING_MAX_MS,
    SimulatedGroup,
    SimulatedProcess,
    SimulatedWorld,
    quiet_scenario,
)
from partage.member import events, outcome
from partage.member.timers import MemberTimer
from partage.model.settings import ConsumerGroupSettings

_EPOCH: Final = 1  # if the live generation is unknown
_POLL_INTERVAL_MS: Final = 50
#: The longest time until a broker knows a change of topics.
_NOTICED_MS: Final = 1_000
#: No hash of topics is equal to it.
_OTHER_HASH: Final = 1


class _MigratedMember(HeartbeatMember):
    """A member that stays in a poll, reads no records, and records its deliverable partitions."""

    world: SimulatedWorld

    @property
    def has_left(self) -> bool:
        """True if the process has left the group and ended."""
        return not self.is_alive

    def handle(self, event: events.Event) -> None:
        super().handle(event)
        self.world.record_readers(self)

    def crash(self, *, silently: bool) -> None:
        super().crash(silently=silently)
        self.world.record_readers(self)

    def leave(self, *, is_final: bool = False) -> None:
        """Leave; a static member keeps its partitions for a while."""
        super().leave(is_final=is_final)

    async def _poll_often(self) -> None:
        self._poll(is_in_poll=True)

    def _perform_action(self, action: outcome.Action) -> None:
        match action:
            case outcome.CallListener():
                is_revoked = action.callback is outcome.ListenerCallback.REVOKED
                delay_ms = self.rng.randrange(PROCESSING_MAX_MS) if is_revoked else 0
                self.pending_callback = action
                self.call_later(delay_ms, lambda: self._complete(action))
            case _:
                super()._perform_action(action)

    def _complete(self, action: outcome.CallListener) -> None:
        self.pending_callback = None
        self.handle(events.CallbackCompleted(at_ms=self.world.now_ms, serial=action.serial))

    def desynchronize_heartbeats(self) -> None:
        """Set the phase of the heartbeats to what it is after a long stable time."""
        if self.core.in_flight is None:
            interval_ms = self.world.options.consumer_heartbeat_interval_ms
            self._arm(MemberTimer.HEARTBEAT, self.world.now_ms + self.rng.randrange(interval_ms))


class ConsumerGroupSimulation(SimulatedGroup):
    """A copy of a live group whose members use the consumer protocol.

    The broker assigns with `uniform`, which is its default.

    Args:
        group: The group; its present assignor does not matter.
    """

    def __init__(self, group: LiveGroup) -> None:
        super().__init__(group, _consumer_scenario(group))
        self._processes: list[_MigratedMember] = []
        self._restore_live_group()

    def _restore_live_group(self) -> None:
        """Bring the group into its live state."""
        world, group = self._world, self.group
        for name in list(world.consumer_topics.images):
            world.consumer_topics.delete(name)
        for name, count in sorted(group.partition_counts.items()):
            world.consumer_topics.create(name, count)
        self._start_broker()
        is_updating = world.broker.update_topics()
        while is_updating():
            world.clock.run(1)
        shard = self._shard
        for record in self._live_records(shard):
            shard.apply(record)
        for member in group.members:
            self.start_process(member, member.member_id)
        self.wait_until_stable()
        self._check_live_state()

    def _live_records(self, shard: Shard) -> list[Record]:
        """Return the records of a consumer group in the live state."""
        group, images = self.group, self._world.consumer_topics.images
        epoch = group.generation or _EPOCH
        topics = {topic for member in group.members for topic in member.topics}
        name = CONSUMER_GROUP
        records: list[Record] = [
            ConsumerGroupRecord(
                group_id=name, epoch=epoch, metadata_hash=shard.catalogue.metadata_hash(topics)
            ),
            TargetAssignmentRecord(group_id=name, assignment_epoch=epoch),
        ]
        for member in group.members:
            owned = {
                images[topic].topic_id: tuple(sorted(indexes))
                for topic, indexes in partitions_by_topic(member.assigned).items()
            }
            records += [
                ConsumerMemberRecord(
                    group_id=name,
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host="",
                    subscribed_topics=tuple(sorted(member.topics)),
                    rebalance_timeout_ms=group.max_poll_interval_ms,
                ),
                MemberTargetRecord(group_id=name, member_id=member.member_id, partitions=owned),
                MemberAssignmentRecord(
                    group_id=name,
                    member_id=member.member_id,
                    member_epoch=epoch,
                    previous_member_epoch=epoch - 1,
                    assigned={
                        topic_id: dict.fromkeys(numbers, epoch)
                        for topic_id, numbers in owned.items()
                    },
                ),
            ]
        return records

    @property
    def group_id(self) -> str:
        return CONSUMER_GROUP

    @property
    def live_processes(self) -> list[SimulatedProcess]:
        return [each for each in self._processes if each.is_alive]

    def start_process(
        self, like: LiveMember, name: str, place: str | None = None
    ) -> SimulatedProcess:
        self.member_by_process[name] = name if place is None else place
        selection = SimSubscription(tuple(sorted(like.topics)))
        process = _MigratedMember(self._world, name, selection, like.instance_id)
        process.core.member_id = name  # before its first heartbeat
        self._processes.append(process)
        return process

    def request_rebalance(self) -> None:
        """Let the coordinator compute a new target, as after a change of a subscribed topic."""
        shard = self._shard
        shard.apply(
            ConsumerGroupRecord(
                group_id=self.group_id, epoch=self.generation, metadata_hash=_OTHER_HASH
            )
        )
        self._world.broker.report_topics()
        epoch = self.generation
        for _ in range(0, _NOTICED_MS + self.group.session_timeout_ms, _POLL_INTERVAL_MS):
            if self.generation > epoch:
                return
            self._world.clock.run(_POLL_INTERVAL_MS)
        raise AssertionError("a heartbeat notices the change")

    def _desynchronize_heartbeats(self) -> None:
        for process in self._processes:
            if process.is_alive:
                process.desynchronize_heartbeats()

    def _is_stable(self) -> bool:
        alive = [each for each in self._processes if each.is_alive]
        found = self._shard.groups.get(self.group_id)
        if not isinstance(found, ConsumerGroup):
            return not alive
        if set(found.members) != {each.member_id for each in alive}:
            return False
        if not alive:
            return found.state is ConsumerGroupState.EMPTY
        return found.state is ConsumerGroupState.STABLE and all(
            each.is_converged and each.pending_callback is None for each in alive
        )


def _consumer_scenario(group: LiveGroup) -> Scenario:
    """Return a scenario with the group's timeouts for members with the consumer protocol."""
    scenario = quiet_scenario(group)
    default_ms = ConsumerGroupSettings().heartbeat_interval_ms
    options = msgspec.structs.replace(
        scenario.options,
        consumer_members=1,
        consumer_session_timeout_ms=group.session_timeout_ms,
        consumer_rebalance_timeout_ms=group.max_poll_interval_ms,
        consumer_heartbeat_interval_ms=min(default_ms, group.session_timeout_ms // 3),
        consumer_members_max=2**31 - 1,
        assignment_interval_ms=1_000,
        action_delay_max_ms=0,
    )
    return msgspec.structs.replace(scenario, options=options)
